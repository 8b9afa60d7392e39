//! Reviews tokens by the API server.
//!
//! A token must be bound to a pod and made for the audience of this service. A good answer is kept for [`CACHE_TTL`], so that a command
//! of several calls costs one review; whether the pod still exists is read anew for each call ([`crate::tenant`]).

use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use governor::Quota;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kit::placement::ObjectKey;
use kube::{Api, Client, api::PostParams};
use runtime::connection_slots::network;
use sha2::{Digest as _, Sha256};
use tokio::{sync::Semaphore, time::Instant};
use tonic::metadata::MetadataMap;

use crate::{error::Error, rates::Rates, semaphores::Semaphores};

/// The audience that a token must be made for.
pub const AUDIENCE: &str = "sip-power";

/// Time for which a review that accepts a token is cached.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Reviews that are cached at most.
const MAX_CACHED_REVIEWS: usize = 1024;
/// Concurrent reviews for all addresses.
const MAX_CONCURRENT_REVIEWS: usize = 64;
/// Concurrent reviews for one address: slow reviews for some leave room for others.
const MAX_CONCURRENT_REVIEWS_PER_ADDRESS: usize = 2;
/// Reviews a second that one address may cause.
const ADDRESS_REVIEWS_PER_SECOND: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// Reviews that one address may cause at once.
const ADDRESS_REVIEW_BURST: NonZeroU32 = NonZeroU32::new(20).unwrap();
/// Bytes of a token, at most.
const MAX_TOKEN_BYTES: usize = 8 << 10;
/// Time that a call waits for a review, and pause after which a caller should retry.
const RETRY_DELAY: Duration = Duration::from_millis(500);

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// The holder of a token: a pod, under its `ServiceAccount`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Namespace and name of the `ServiceAccount`.
    pub account: ObjectKey,
    /// Its uid.
    pub account_uid: String,
    /// Name of the pod.
    pub pod: String,
    /// Its uid.
    pub pod_uid: String,
}

/// Reviews tokens.
pub struct Reviews {
    client: Client,
    kept: Mutex<HashMap<[u8; 32], (Instant, Holder)>>,
    all: Semaphore,
    addresses: Semaphores<IpAddr>,
    rates: Rates,
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviews").finish_non_exhaustive()
    }
}

impl Reviews {
    /// Reviews by this API server.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            kept: Mutex::default(),
            all: Semaphore::new(MAX_CONCURRENT_REVIEWS),
            addresses: Semaphores::default(),
            rates: Rates::new(
                Quota::per_second(ADDRESS_REVIEWS_PER_SECOND).allow_burst(ADDRESS_REVIEW_BURST),
            ),
        }
    }

    /// Who holds the token in a call's headers.
    ///
    /// # Errors
    /// [`Error::TokenRefused`] states why, never the token; [`Error::Overloaded`], [`Error::ApiServer`].
    pub async fn holder(&self, headers: &MetadataMap, from: IpAddr) -> Result<Holder, Error> {
        let token = bearer(headers)?;
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(holder) = self.cached(&digest) {
            return Ok(holder);
        }
        let overloaded = |what: String, limit| Error::Overloaded {
            what,
            limit,
            retry_after: RETRY_DELAY,
        };
        let network = network(from);
        if self.rates.count(&network.to_string()).is_err() {
            let what = format!("{from} presents more than {ADDRESS_REVIEWS_PER_SECOND} new tokens a second");
            return Err(overloaded(what, "tokens"));
        }
        let permits = async {
            let own = self
                .addresses
                .get(network, MAX_CONCURRENT_REVIEWS_PER_ADDRESS)
                .acquire_owned()
                .await
                .ok()?;
            Some((own, self.all.acquire().await.ok()?))
        };
        let Ok(Some(_permits)) = tokio::time::timeout(RETRY_DELAY, permits).await else {
            return Err(overloaded(
                format!(
                    "{MAX_CONCURRENT_REVIEWS_PER_ADDRESS} tokens from {from}, or {MAX_CONCURRENT_REVIEWS} in all, are being reviewed"
                ),
                "reviews",
            ));
        };
        let holder = self.review(token).await?;
        self.cache(digest, &holder);
        Ok(holder)
    }

    async fn review(&self, token: &str) -> Result<Holder, Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                token: token.to_owned(),
            },
            ..TokenReview::default()
        };
        let answer = Api::<TokenReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await
            .map_err(Error::api_server("review tokens"))?;
        let refused = |why: &str| Error::TokenRefused(why.to_owned());
        let status = answer
            .status
            .ok_or_else(|| refused("the API server does not return the user of the token"))?;
        if status.authenticated != Some(true) {
            // The API server's message is about the token's claims, which the caller has chosen.
            return Err(refused(
                "it is forged, expired, for another audience, or its pod no longer exists",
            ));
        }
        let audiences = status.audiences.unwrap_or_default();
        if !audiences.iter().any(|audience| audience == AUDIENCE) {
            return Err(Error::TokenRefused(format!(
                "it is not for the audience {AUDIENCE}"
            )));
        }
        holder(status.user.unwrap_or_default())
    }

    fn cached(&self, digest: &[u8; 32]) -> Option<Holder> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, holder) = kept.get(digest)?;
        (*until > Instant::now()).then(|| holder.clone())
    }

    fn cache(&self, digest: [u8; 32], holder: &Holder) {
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_CACHED_REVIEWS {
            kept.retain(|_, (until, _)| *until > now);
        }
        if kept.len() < MAX_CACHED_REVIEWS {
            kept.insert(digest, (now + CACHE_TTL, holder.clone()));
        }
    }
}

fn bearer(headers: &MetadataMap) -> Result<&str, Error> {
    let refused = |why: &str| Error::TokenRefused(why.to_owned());
    let value = headers
        .get("authorization")
        .ok_or_else(|| refused("there is none: send the header `authorization: Bearer TOKEN`"))?;
    let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    let token = token.ok_or_else(|| refused("the header is not `authorization: Bearer TOKEN`"))?;
    if token.is_empty() || token.len() > MAX_TOKEN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(refused("it does not have the form of a token"));
    }
    Ok(token)
}

fn holder(user: UserInfo) -> Result<Holder, Error> {
    let UserInfo {
        extra,
        groups: _,
        uid,
        username,
    } = user;
    let account = username
        .as_deref()
        .and_then(|name| name.strip_prefix(SERVICE_ACCOUNT_PREFIX));
    let Some((namespace, name)) = account.and_then(|rest| rest.split_once(':')) else {
        return Err(Error::TokenRefused(
            "it is not that of a ServiceAccount".to_owned(),
        ));
    };
    let extra = extra.unwrap_or_default();
    let one = |key: &str| match extra.get(key).map(Vec::as_slice) {
        Some([value]) if !value.is_empty() => Some(value.clone()),
        Some(_) | None => None,
    };
    let (Some(pod), Some(pod_uid), Some(account_uid)) = (one(POD_NAME), one(POD_UID), uid) else {
        return Err(Error::TokenRefused("it is not bound to a pod".to_owned()));
    };
    Ok(Holder {
        account: ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        account_uid,
        pod,
        pod_uid,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn user(name: &str, extra: &[(&str, &[&str])]) -> UserInfo {
        let extra = extra.iter().map(|(key, values)| {
            let values = values.iter().map(|&value| value.to_owned()).collect();
            ((*key).to_owned(), values)
        });
        UserInfo {
            username: Some(name.to_owned()),
            uid: Some("account-uid".to_owned()),
            extra: Some(extra.collect::<BTreeMap<String, Vec<String>>>()),
            groups: None,
        }
    }

    #[test]
    fn the_holder_is_a_pod_under_its_service_account() {
        let bound: &[(&str, &[&str])] = &[(POD_NAME, &["p"]), (POD_UID, &["u"])];
        let found = holder(user("system:serviceaccount:shop:jumphost-orders", bound)).unwrap();
        assert_eq!(found.account.to_string(), "shop/jumphost-orders");
        assert_eq!((&*found.pod, &*found.pod_uid), ("p", "u"));
        for (name, extra) in [
            ("system:serviceaccount:shop:jumphost-orders", &[][..]),
            (
                "system:serviceaccount:shop:jumphost-orders",
                &[(POD_NAME, &["p"][..])][..],
            ),
            (
                "system:serviceaccount:shop:x",
                &[(POD_NAME, &["p", "q"][..]), (POD_UID, &["u"])][..],
            ),
            ("system:serviceaccount:shop", bound),
            ("kubernetes-admin", bound),
            ("", bound),
        ] {
            let error = holder(user(name, extra)).unwrap_err();
            assert!(matches!(error, Error::TokenRefused(_)), "{name} {extra:?}");
        }
    }

    #[test]
    fn only_bearer_tokens_are_accepted() {
        let with = |value: &str| {
            let mut headers = MetadataMap::new();
            headers.insert("authorization", value.parse().unwrap());
            bearer(&headers).map(ToOwned::to_owned)
        };
        assert_eq!(with("Bearer abc").unwrap(), "abc");
        for bad in ["", "abc", "bearer abc", "Bearer ", "Bearer a b", "Basic abc"] {
            assert!(with(bad).is_err(), "{bad}");
        }
        assert!(with(&format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1))).is_err());
        assert!(bearer(&MetadataMap::new()).is_err());
    }
}
