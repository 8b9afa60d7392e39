//! Options of sshd besides its configuration file, which has only keywords that every version knows: newer keywords, and the environment of
//! sessions.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use render::jump_host::interface::{CLUSTER_VARIABLE, POWER_ADDRESS_VARIABLE, TOOLS};

/// Where programs of images are.
const SESSION_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Keywords that are left out where sshd does not know them.
///
/// OpenSSH 9.8 and later refuse an address for a while after failed logins from it. Users often share the address of a node of the site, so
/// a stranger would lock all of them out. `PermitListen` (7.8) is a second lock: `AllowTcpForwarding local` is the first.
pub(crate) const NEWER_OPTIONS: [&str; 2] = ["PerSourcePenalties no", "PermitListen none"];
/// Makes sshd before 7.8, which has no `SetEnv`, read the [file](Environment::write) of the account. Users can change that file as they can
/// what their shells read first.
pub(crate) const INSTEAD_OF_SET_ENV: &str = "PermitUserEnvironment yes";
/// That file, in the directory of the account.
const ENVIRONMENT_FILE: &str = ".ssh/environment";

/// The environment of sessions.
#[derive(Clone, Debug, Default)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// That of a jump host whose container has these variables.
    #[must_use]
    pub fn of_sessions() -> Self {
        let own = [CLUSTER_VARIABLE, POWER_ADDRESS_VARIABLE];
        let own = own
            .into_iter()
            .filter_map(|name| Some((name, env::var(name).ok()?)));
        let fixed = [
            ("PATH", format!("{TOOLS}:{SESSION_PATH}")),
            ("KUBECACHEDIR", "/tmp/kube-cache".to_owned()),
        ];
        Self::new(fixed.into_iter().chain(own))
    }

    /// Leaves out values that could be more than one word.
    pub(crate) fn new(variables: impl Iterator<Item = (&'static str, String)>) -> Self {
        let is_word = |value: &str| {
            value
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"\"'\\#".contains(&byte))
        };
        let variables = variables.filter(|(_, value)| is_word(value));
        Self(variables.map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn variables(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| format!("{name}={value}"))
    }

    /// As a `SetEnv` keyword, for OpenSSH 7.8 and later.
    pub(crate) fn set_env(&self) -> String {
        let variables: Vec<String> = self.variables().collect();
        format!("SetEnv {}", variables.join(" "))
    }

    /// Writes the file that older versions read, in place of whatever is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, home: &Path) -> io::Result<()> {
        let file = home.join(ENVIRONMENT_FILE);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut opened = File::create_new(&file)?;
        self.variables().try_for_each(|line| writeln!(opened, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_several_words_is_no_variable() {
        let variables = [
            ("A", "b:c/d"),
            ("B", "x LD_PRELOAD=/y"),
            ("C", "x\nD=y"),
            ("E", "\""),
        ];
        let variables = variables.map(|(name, value)| (name, value.to_owned()));
        let environment = Environment::new(variables.into_iter());
        assert_eq!(environment.set_env(), "SetEnv A=b:c/d");
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".ssh")).unwrap();
        std::os::unix::fs::symlink("/absent/file", home.path().join(ENVIRONMENT_FILE)).unwrap();
        for _ in 0..2 {
            environment.write(home.path()).unwrap();
            assert_eq!(
                fs::read_to_string(home.path().join(ENVIRONMENT_FILE)).unwrap(),
                "A=b:c/d\n"
            );
        }
    }
}
