//! Where the source of an image is, as an image may tell it to everybody.

/// The URL of a git remote without user name, password, query and fragment: build systems put tokens there, and whoever
/// pulls an image reads its labels. `None` for what is no URL, such as the path of a local clone.
#[must_use]
pub fn public_url(remote: &str) -> Option<String> {
    if let Some((scheme, rest)) = remote.split_once("://") {
        if !matches!(scheme, "https" | "http" | "ssh" | "git") {
            return None;
        }
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit('@').next().unwrap_or_default();
        return (!host.is_empty()).then(|| format!("{scheme}://{host}/{path}"));
    }
    // As ssh knows it: USER@HOST:PATH, which has no place for a password.
    let (host, path) = remote.split_once(':')?;
    let host = host.rsplit('@').next().unwrap_or_default();
    (!host.is_empty() && !host.contains('/'))
        .then(|| format!("ssh://{host}/{}", path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_remote_stay_out() {
        for (remote, url) in [
            ("https://git.example/sip/sip", Some("https://git.example/sip/sip")),
            (
                "https://user:TOKEN@git.example/sip",
                Some("https://git.example/sip"),
            ),
            ("https://TOKEN@git.example/a@b", Some("https://git.example/a@b")),
            ("https://a@TOKEN@git.example/sip", Some("https://git.example/sip")),
            (
                "https://git.example/sip?private_token=TOKEN#TOKEN",
                Some("https://git.example/sip"),
            ),
            (
                "ssh://git@git.example:2222/sip",
                Some("ssh://git.example:2222/sip"),
            ),
            (
                "git@git.example:sip/sip.git",
                Some("ssh://git.example/sip/sip.git"),
            ),
            ("/srv/clones/sip", None),
            ("../sip:old", None),
            ("file:///srv/clones/sip", None),
            ("https://TOKEN@/sip", None),
            ("", None),
        ] {
            assert_eq!(public_url(remote).as_deref(), url, "{remote}");
        }
    }
}
