//! One object that a program follows: each version that it has, as soon as the watch delivers it.

use std::{convert::Infallible, error::Error as StdError, fmt::Debug};

use futures::{StreamExt as _, pin_mut};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt as _, watcher::watch_object},
};
use serde::de::DeserializeOwned;

use crate::retries::watch_pauses;

/// Follows the object of a name without end. Calls `observe` with each version, and with `None` while there is no such object.
///
/// # Errors
/// None: it tries again with growing pauses.
pub async fn follow<K>(api: Api<K>, name: &str, mut observe: impl FnMut(Option<K>)) -> Result<(), Infallible>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watch_object(api, name).backoff(watch_pauses());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(object) => observe(object),
            Err(error) => tracing::warn!(
                kind = %K::kind(&()),
                name,
                error = &error as &dyn StdError,
                "the object cannot be watched; retrying"
            ),
        }
    }
    Ok(())
}
