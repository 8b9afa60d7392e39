//! A request to the API server: what it asks for.

use std::fmt;

use http::{Method, Uri};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    /// `get`, `list`, `watch`, `post`, `put`, `patch`, `delete`.
    pub(crate) verb: String,
    /// Plural, such as `baremetalhosts`, with the subresource if there is one: `sipclusters/status`.
    pub(crate) resource: String,
    /// Empty for objects without a namespace.
    pub(crate) namespace: String,
    /// Empty for lists and creations.
    pub(crate) name: String,
}

impl Call {
    pub(super) fn parse(method: &Method, uri: &Uri) -> Self {
        let mut parts = uri.path().trim_matches('/').split('/');
        // `api/v1` or `apis/GROUP/VERSION`.
        let skipped = if parts.next() == Some("apis") { 2 } else { 1 };
        let rest: Vec<&str> = parts.skip(skipped).collect();
        let (namespace, rest) = match &*rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default();
        let (resource, name) = (part(0), part(1));
        let resource = match part(2) {
            "" => resource.to_owned(),
            subresource => format!("{resource}/{subresource}"),
        };
        let watches = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .any(|pair| pair.starts_with("watch="));
        let verb = match method.as_str() {
            "GET" if watches => "watch".to_owned(),
            "GET" if name.is_empty() => "list".to_owned(),
            other => other.to_lowercase(),
        };
        Self {
            verb,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Whether it writes what an agent has to write: Leases and Events come at any time, and reviews change nothing.
    pub(crate) fn is_write(&self) -> bool {
        let writes = ["post", "put", "patch", "delete"].contains(&&*self.verb);
        writes && !["leases", "events"].contains(&&*self.resource) && !self.resource.ends_with("reviews")
    }

    /// Whether it is about a scenario: its namespace, or one of its hosts.
    pub(crate) fn is_of(&self, scenario: &str) -> bool {
        self.namespace == scenario
            || self
                .name
                .strip_prefix(scenario)
                .is_some_and(|rest| rest.starts_with('-'))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}/{}",
            self.verb, self.resource, self.namespace, self.name
        )
    }
}

#[test]
fn requests_are_parsed() {
    for (method, uri, expected) in [
        (
            "GET",
            "/api/v1/namespaces/metal/secrets?limit=500",
            "list secrets metal/",
        ),
        (
            "GET",
            "/apis/metal3.io/v1alpha1/namespaces/metal/baremetalhosts?&watch=true&x=1",
            "watch baremetalhosts metal/",
        ),
        (
            "PATCH",
            "/apis/metal3.io/v1alpha1/namespaces/metal/baremetalhosts/h1?fieldManager=x",
            "patch baremetalhosts metal/h1",
        ),
        (
            "PATCH",
            "/apis/a.b/v1/namespaces/shop/sipclusters/one/status?",
            "patch sipclusters/status shop/one",
        ),
        (
            "POST",
            "/apis/events.k8s.io/v1/namespaces/shop/events",
            "post events shop/",
        ),
        ("GET", "/apis/a.b/v1/sipclusters?", "list sipclusters /"),
        ("GET", "/api/v1/namespaces/shop", "get namespaces /shop"),
    ] {
        let call = Call::parse(&method.parse().unwrap(), &uri.parse().unwrap());
        assert_eq!(call.to_string(), expected);
    }
}
