//! Lists of objects that tenants write, page by page, so that an agent holds one page in memory, and not the whole list, before it reduces the
//! objects.

use std::fmt::Debug;

use futures::{Stream, TryStreamExt as _, stream};
use kube::{
    Api,
    api::{ListParams, ObjectList, PartialObjectMeta},
    runtime::watcher,
};
use serde::de::DeserializeOwned;

/// Objects in one page. An API server stores 1.5 MiB of an object; the client has a page twice, as bytes and as text, so that a list takes
/// 48 MiB at most until its objects are reduced. A list of 1,000 objects takes 63 calls.
pub const PAGE_SIZE: u32 = 16;

/// The same for a watch.
#[must_use]
pub fn in_pages(config: watcher::Config) -> watcher::Config {
    config.page_size(PAGE_SIZE)
}

/// The objects that `params` select, all of one moment. The next page is requested when the one before is used up, so a reader that stops
/// early saves the rest. Ends with the first error: the API server does not answer, or no longer has that moment (410).
pub fn objects<K>(api: Api<K>, params: ListParams) -> impl Stream<Item = kube::Result<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    list_pages(params, move |params| {
        let api = api.clone();
        async move { api.list(&params).await }
    })
}

/// The same without their content.
pub fn metadata<K>(api: Api<K>, params: ListParams) -> impl Stream<Item = kube::Result<PartialObjectMeta<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    list_pages(params, move |params| {
        let api = api.clone();
        async move { api.list_metadata(&params).await }
    })
}

fn list_pages<T: Clone, Listing>(
    params: ListParams,
    list: impl Fn(ListParams) -> Listing,
) -> impl Stream<Item = kube::Result<T>>
where
    Listing: Future<Output = kube::Result<ObjectList<T>>>,
{
    let pages = stream::try_unfold(Some(params.limit(PAGE_SIZE)), move |page| {
        let listing = page.map(|params| (params.clone(), list(params)));
        async move {
            let Some((params, listing)) = listing else {
                return Ok::<_, kube::Error>(None);
            };
            let ObjectList { items, metadata, .. } = listing.await?;
            let token = metadata.continue_.filter(|token| !token.is_empty());
            let next = token.map(|token| params.continue_token(&token));
            Ok(Some((stream::iter(items.into_iter().map(Ok)), next)))
        }
    });
    pages.try_flatten()
}
