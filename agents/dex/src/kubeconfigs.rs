//! By which kubeconfigs an entry's bindings were applied: bindings may be in all these clusters. Pure.

/// Secrets of kubeconfigs that are recorded for one entry, with the one that it names. Of more, the oldest are forgotten.
const MOST: usize = 8;
/// Longest name of a Secret, in bytes.
const LONGEST_NAME: usize = 253;

/// The Secrets by whose kubeconfigs an entry's bindings were applied, the last one first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Kubeconfigs(Vec<String>);

impl Kubeconfigs {
    /// By their names, one per line. What cannot be the name of a Secret is left out.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut names: Vec<String> = Vec::new();
        for name in text.lines().filter(|line| is_name(line)) {
            if names.len() < MOST && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Self(names)
    }

    /// One name per line; `None`: there are none.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("\n"))
    }

    /// Whether bindings may have been applied by this one.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }

    /// Bindings are applied by this one from now on. Returns what is forgotten.
    pub fn add(&mut self, name: &str) -> Vec<String> {
        self.remove(name);
        self.0.insert(0, name.to_owned());
        self.0.split_off(self.0.len().min(MOST))
    }

    /// Nothing of the entry is in the cluster of this one, or it does not exist any more.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|known| known != name);
    }

    /// Those other than the one that the entry names.
    #[must_use]
    pub fn former(&self, named: Option<&str>) -> Vec<String> {
        let former = self.0.iter().filter(|known| Some(known.as_str()) != named);
        former.cloned().collect()
    }
}

/// Whether this is a DNS subdomain.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_kubeconfigs_are_recorded() {
        let mut kubeconfigs = Kubeconfigs::default();
        assert_eq!(kubeconfigs.text(), None);
        for name in ["one", "two", "one", "three"] {
            assert!(kubeconfigs.add(name).is_empty());
        }
        assert_eq!(kubeconfigs.text().as_deref(), Some("three\none\ntwo"));
        assert_eq!(kubeconfigs.former(Some("one")), ["three", "two"]);
        assert_eq!(kubeconfigs.former(None), ["three", "one", "two"]);
        kubeconfigs.remove("three");
        assert_eq!(kubeconfigs.former(Some("one")), ["two"]);
        let forgotten: Vec<String> = (0..MOST)
            .flat_map(|n| kubeconfigs.add(&format!("n{n}")))
            .collect();
        assert_eq!(forgotten, ["two", "one"]);
        assert_eq!(kubeconfigs.former(None).len(), MOST);
        assert!(kubeconfigs.has("n0") && !kubeconfigs.has("one"));
    }

    #[test]
    fn only_names_of_secrets_are_read() {
        let long = "x".repeat(LONGEST_NAME + 1);
        let text = format!("a.b-1\n\n{long}\n../c\nA\na b\nb\u{e9}\n.\n..\na.\n-a\na-\na.b-1\nlast");
        assert_eq!(Kubeconfigs::read(&text).former(None), ["a.b-1", "last"]);
        let many: Vec<String> = (0..2 * MOST).map(|n| format!("n{n}")).collect();
        assert_eq!(Kubeconfigs::read(&many.join("\n")).former(None).len(), MOST);
    }
}
