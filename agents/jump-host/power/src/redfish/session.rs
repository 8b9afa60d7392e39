//! Logging in: by a session where the BMC makes sessions, so that the password crosses the network once; else by basic authentication.

use hyper::{Method, StatusCode, header::LOCATION};

use super::{
    connect::Connection,
    exchange::{self, Answer, Login, TOKEN},
    failure::Failure,
    model::{self, RawRoot},
    network::Network,
    reference,
};
use crate::bmc::{Address, Credentials};

const SERVICE_ROOT: &str = "/redfish/v1/";

/// Path of the session that the login has made, to be deleted at the end, since BMCs have few; `None` with basic authentication.
pub(super) type Session = Option<String>;

/// Logs in over a connection that is open.
pub(super) async fn login(
    network: &Network,
    address: &Address,
    connection: &mut Connection,
    credentials: &Credentials,
) -> Result<(Login, Session), Failure> {
    let unauthorized = || Failure::Unauthorized {
        bmc: address.authority(),
    };
    let basic = || credentials.basic().map(Login::Basic).ok_or_else(unauthorized);
    let root = (Method::GET, SERVICE_ROOT, &Login::None);
    let root = exchange::exchange(network, address, connection, root, None).await?;
    let root: RawRoot = match root.status {
        // Some BMCs open their root to users only.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok((basic()?, None)),
        _ => root.resource(address, SERVICE_ROOT)?,
    };
    let Some(sessions) = root.sessions() else {
        return Ok((basic()?, None));
    };
    let sessions = reference::path_on_bmc(address, &sessions)?;
    let body = credentials.session();
    let made = (Method::POST, &*sessions, &Login::None);
    let made = exchange::exchange(network, address, connection, made, Some(&body)).await?;
    match made.status {
        status if status.is_success() => {}
        // There is no such service after all.
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            return Ok((basic()?, None));
        }
        // Wrong credentials are no malformed request, but some BMCs answer 400 to them.
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(unauthorized());
        }
        // The BMC's message might quote the request.
        status => {
            return Err(Failure::Status {
                bmc: address.authority(),
                path: sessions,
                status: status.as_u16(),
                message: String::new(),
            });
        }
    }
    let session = session_path(address, &made);
    let Some(token) = made.headers.get(TOKEN) else {
        if let (Some(Ok(session)), Ok(login)) = (session, basic()) {
            end(network, address, connection, (&session, &login)).await;
        }
        return Err(Failure::NotRedfish {
            bmc: address.authority(),
            path: sessions,
            found: "a session without token".to_owned(),
        });
    };
    let mut token = token.clone();
    token.set_sensitive(true);
    Ok((Login::Session(token), session.transpose()?))
}

/// Where a session is: by the header of the answer, or by its body, where some BMCs alone have it. Each session that is not ended takes one of
/// the few of the BMC until it times out.
fn session_path(address: &Address, made: &Answer) -> Option<Result<String, Failure>> {
    let by_header = made
        .header(&LOCATION)
        .map(|location| reference::created(address, location));
    let by_body = || {
        let path = model::path(made.body.as_deref().ok()?)?;
        reference::created(address, &path).ok()
    };
    match by_header {
        Some(Ok(path)) => Some(Ok(path)),
        other => by_body().map(Ok).or(other),
    }
}

/// Deletes a session that cannot be used.
async fn end(
    network: &Network,
    address: &Address,
    connection: &mut Connection,
    (session, login): (&str, &Login),
) {
    let delete = (Method::DELETE, session, login);
    if let Err(failure) = exchange::exchange(network, address, connection, delete, None).await {
        tracing::debug!(
            error = &failure as &dyn std::error::Error,
            "a session could not be ended"
        );
    }
}
