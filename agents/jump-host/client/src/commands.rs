//! The commands.

use std::io;

use clap::CommandFactory as _;
use proto::power::v1::{
    Action, GetConsoleRequest, GetHostRequest, ListHostsRequest, SetPowerRequest, set_power_response::Step,
};

use crate::{
    arguments::{Arguments, Command, Forced, Format, Name},
    attempts::Attempts,
    connection::Service,
    failure::{Failure, reason},
    output::{self, Outcome},
};

/// Retries of an action under the same key when the response is lost.
const MAX_RETRIES: usize = 3;

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments {
        command,
        server,
        output,
    } = arguments;
    if let Command::Completion { shell } = command {
        clap_complete::generate(shell, &mut Arguments::command(), "host", &mut io::stdout());
        return Ok(());
    }
    let service = Service::new(&server)?;
    match command {
        Command::List => list(&service, output).await,
        Command::Status(Name { host }) => status(&service, output, &host).await,
        Command::Console(Name { host }) => console(&service, output, &host).await,
        Command::Reboot(Forced { host, force }) => {
            let action = if force {
                Action::ForceReboot
            } else {
                Action::Reboot
            };
            set_power(&service, output, &host, action).await
        }
        Command::On(Name { host }) => set_power(&service, output, &host, Action::On).await,
        Command::Off(Forced { host, force }) => {
            let action = if force { Action::ForceOff } else { Action::Off };
            set_power(&service, output, &host, action).await
        }
        Command::Completion { shell: _ } => Ok(()),
    }
}

async fn list(service: &Service<'_>, format: Format) -> Result<(), Failure> {
    let listed = service.call(async |mut client| {
        let request = service.request(ListHostsRequest::default())?;
        Ok(client.list_hosts(request).await?.into_inner())
    });
    output::list(format, &listed.await?)
}

async fn status(service: &Service<'_>, format: Format, host: &str) -> Result<(), Failure> {
    let got = service.call(async |mut client| {
        let request = service.request(GetHostRequest {
            host: host.to_owned(),
        })?;
        Ok(client.get_host(request).await?.into_inner())
    });
    output::status(format, &got.await?)
}

async fn console(service: &Service<'_>, format: Format, host: &str) -> Result<(), Failure> {
    let got = service.call(async |mut client| {
        let request = service.request(GetConsoleRequest {
            host: host.to_owned(),
        })?;
        Ok(client.get_console(request).await?.into_inner())
    });
    output::consoles(format, &got.await?)
}

/// Requests an action under one key, and again under the same key where the response is lost: it is executed once at most.
async fn set_power(service: &Service<'_>, format: Format, host: &str, action: Action) -> Result<(), Failure> {
    let listed = service.call(async |mut client| {
        let request = service.request(ListHostsRequest { without_hosts: true })?;
        Ok(client.list_hosts(request).await?.into_inner())
    });
    let message = SetPowerRequest {
        host: host.to_owned(),
        action: action.into(),
        idempotency_key: uuid::Uuid::new_v4().to_string(),
        term: listed.await?.term,
    };
    let attempts = Attempts::default();
    let followed = follow(service, format, &message, &attempts).await;
    followed.map_err(|failure| attempts.judge(failure))
}

/// Repeats the request until the service has answered how the action ended, [`MAX_RETRIES`] times at most.
async fn follow(
    service: &Service<'_>,
    format: Format,
    message: &SetPowerRequest,
    attempts: &Attempts,
) -> Result<(), Failure> {
    let mut outcome = Outcome::new(format);
    let mut lost = tonic::Status::unavailable("there is no answer");
    for _ in 0..MAX_RETRIES {
        let followed = service.call(async |mut client| {
            let request = service.request(message.clone())?;
            let answer = attempts.once(client.set_power(request)).await?;
            Ok(answer.into_inner())
        });
        let mut steps = followed.await?;
        outcome.restart();
        lost = loop {
            match steps.message().await {
                Ok(Some(answer)) => {
                    outcome.step(&answer)?;
                    if let Some(Step::Done(_)) = answer.step {
                        return outcome.end();
                    }
                }
                Ok(None) => break tonic::Status::unavailable("the answer has no end"),
                // The service answers how it ended.
                Err(status) if !reason(&status).is_empty() => return Err(Failure::Ended(Box::new(status))),
                Err(status) => break status,
            }
        };
    }
    Err(lost.into())
}
