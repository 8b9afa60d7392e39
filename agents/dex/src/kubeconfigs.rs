//! The kubeconfigs by which an entry's bindings were applied: each of their clusters may have bindings. Pure.

/// Maximum number of kubeconfigs that are recorded for one entry, including the one that it names. The oldest further ones are forgotten.
const MAX_RECORDED: usize = 8;
/// Maximum length of the name of a Secret, in bytes.
const MAX_NAME_BYTES: usize = 253;
/// Maximum length of the address of an API server, in bytes: a host and a port.
const MAX_ADDRESS_BYTES: usize = 320;
/// Maximum length of the digest of an API server, in bytes.
const MAX_DIGEST_BYTES: usize = 64;

/// The API server of a kubeconfig.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// Its address, for messages.
    pub address: String,
    /// Identifies it among others at the same address; `None`: it was recorded without.
    pub digest: Option<String>,
}

impl Server {
    /// Whether both are known to be the same server; false without a digest.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest.is_some() && self == other
    }
}

/// A kubeconfig by which bindings were applied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordedKubeconfig {
    /// Name of its Secret.
    pub secret: String,
    /// The API server that it leads to.
    pub server: Server,
}

/// The kubeconfigs by which an entry's bindings were applied, the last one first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Kubeconfigs(Vec<RecordedKubeconfig>);

impl Kubeconfigs {
    /// Parses one kubeconfig per line: a Secret, the address of a server, and its digest. Skips other lines.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut read = Self::default();
        for (secret, server) in text.lines().filter_map(|line| line.split_once(' ')) {
            let (address, digest) = match server.split_once(' ') {
                Some((address, digest)) => (address, Some(digest)),
                None => (server, None),
            };
            let is_address = is_short(address, MAX_ADDRESS_BYTES);
            let is_digest = digest.is_none_or(|digest| is_short(digest, MAX_DIGEST_BYTES));
            if is_name(secret) && is_address && is_digest && read.0.len() < MAX_RECORDED && !read.has(secret)
            {
                let server = Server {
                    address: address.to_owned(),
                    digest: digest.map(str::to_owned),
                };
                let secret = secret.to_owned();
                read.0.push(RecordedKubeconfig { secret, server });
            }
        }
        read
    }

    /// The text that [`Self::read`] parses; `None` without kubeconfigs.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let lines = self.0.iter();
        let lines = lines.map(|RecordedKubeconfig { secret, server }| {
            let Server { address, digest } = server;
            let digest = digest.as_ref().map(|digest| format!(" {digest}"));
            format!("{secret} {address}{}", digest.unwrap_or_default())
        });
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Whether bindings may have been applied by this Secret.
    #[must_use]
    pub fn has(&self, secret: &str) -> bool {
        self.0.iter().any(|known| known.secret == secret)
    }

    /// Records that bindings are applied by this kubeconfig from now on. Returns the records that are forgotten for it.
    pub fn add(&mut self, secret: &str, server: &Server) -> Vec<RecordedKubeconfig> {
        self.remove(secret);
        let (secret, server) = (secret.to_owned(), server.clone());
        self.0.insert(0, RecordedKubeconfig { secret, server });
        self.0.split_off(self.0.len().min(MAX_RECORDED))
    }

    /// Removes the record: no binding of the entry is left in the cluster of this kubeconfig.
    pub fn remove(&mut self, secret: &str) {
        self.0.retain(|known| known.secret != secret);
    }

    /// The recorded kubeconfigs except the one that the entry names.
    #[must_use]
    pub fn former(&self, named: Option<&str>) -> Vec<RecordedKubeconfig> {
        let former = self.0.iter().filter(|known| Some(known.secret.as_str()) != named);
        former.cloned().collect()
    }
}

/// Whether this is a word of at most so many bytes.
fn is_short(word: &str, max_bytes: usize) -> bool {
    word.len() <= max_bytes && word.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether this is a DNS subdomain.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= MAX_NAME_BYTES && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(recorded: &[RecordedKubeconfig]) -> Vec<&str> {
        recorded.iter().map(|known| known.secret.as_str()).collect()
    }

    fn api(digest: Option<&str>) -> Server {
        Server {
            address: "api:6443".to_owned(),
            digest: digest.map(str::to_owned),
        }
    }

    #[test]
    fn servers_at_one_address_are_told_apart() {
        let read = Kubeconfigs::read("one api:6443 a1\ntwo api:6443").former(None);
        let servers: Vec<Server> = read.into_iter().map(|known| known.server).collect();
        assert_eq!(servers, [api(Some("a1")), api(None)]);
        assert!(servers[0].is_same(&servers[0]) && !servers[0].is_same(&api(Some("b2"))));
        // It was recorded without a digest.
        assert!(!servers[1].is_same(&servers[0]) && !servers[1].is_same(&servers[1]));
    }

    #[test]
    fn the_last_kubeconfigs_are_recorded() {
        let api = api(Some("a1"));
        let mut kubeconfigs = Kubeconfigs::default();
        assert_eq!(kubeconfigs.text(), None);
        for name in ["one", "two", "one", "three"] {
            assert!(kubeconfigs.add(name, &api).is_empty());
        }
        let text = kubeconfigs.text().unwrap();
        assert_eq!(text, "three api:6443 a1\none api:6443 a1\ntwo api:6443 a1");
        assert_eq!(Kubeconfigs::read(&text), kubeconfigs);
        assert_eq!(names(&kubeconfigs.former(Some("one"))), ["three", "two"]);
        assert_eq!(names(&kubeconfigs.former(None)), ["three", "one", "two"]);
        kubeconfigs.remove("three");
        assert_eq!(names(&kubeconfigs.former(Some("one"))), ["two"]);
        let forgotten = (0..MAX_RECORDED).flat_map(|n| kubeconfigs.add(&format!("n{n}"), &api));
        assert_eq!(names(&forgotten.collect::<Vec<_>>()), ["two", "one"]);
        assert_eq!(kubeconfigs.former(None).len(), MAX_RECORDED);
        assert!(kubeconfigs.has("n0") && !kubeconfigs.has("one"));
    }

    #[test]
    fn only_names_of_secrets_are_read() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        let lines = [
            "a.b-1", "", &long, "../c", "A", "b\u{e9}", ".", "..", "a.", "-a", "a-", "a.b-1", "last",
        ];
        let text: Vec<String> = lines.iter().map(|name| format!("{name} api:6443")).collect();
        assert_eq!(
            names(&Kubeconfigs::read(&text.join("\n")).former(None)),
            ["a.b-1", "last"]
        );
        for (server, is_read) in [
            ("", true),
            ("a b", true),
            ("a b c", false),
            ("\u{e9}", false),
            (&"x".repeat(MAX_ADDRESS_BYTES + 1), false),
            (&format!("a {}", "x".repeat(MAX_DIGEST_BYTES + 1)), false),
        ] {
            let read = Kubeconfigs::read(&format!("a {server}")).former(None);
            assert_eq!(read.len(), usize::from(is_read), "{server}");
        }
        let many: Vec<String> = (0..2 * MAX_RECORDED).map(|n| format!("n{n} api:6443")).collect();
        assert_eq!(
            Kubeconfigs::read(&many.join("\n")).former(None).len(),
            MAX_RECORDED
        );
    }
}
