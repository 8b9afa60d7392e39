//! The account that users log in to, and its directory.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use render::jump_host::{
    files::SSH_CONFIG,
    interface::{TOOLS, USER, USER_ID},
};
use rustix::process::getuid;

const PASSWD_FILE: &str = "/etc/passwd";

/// What an image lacks, or why its user's directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such account.
    #[error("the image has no user {USER} with the UID {USER_ID} in {PASSWD_FILE}: users could not log in")]
    Account,
    /// Its accounts cannot be read.
    #[error("the image's {PASSWD_FILE} cannot be read")]
    Accounts(#[source] io::Error),
    /// Something in its directory.
    #[error("{} cannot be written", path.display())]
    Home {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Checks that the image has the account: sshd admits no other user.
///
/// # Errors
/// When it has not.
pub fn check() -> Result<(), Error> {
    let accounts = fs::read_to_string(PASSWD_FILE).map_err(Error::Accounts)?;
    if has_account(&accounts) {
        Ok(())
    } else {
        Err(Error::Account)
    }
}

/// Lines are `NAME:PASSWORD:UID:GID:GECOS:HOME:SHELL`.
fn has_account(accounts: &str) -> bool {
    accounts.lines().any(|line| {
        let mut fields = line.split(':');
        fields.next() == Some(USER) && fields.nth(1) == Some(&*USER_ID.to_string())
    })
}

/// Prepares the directory of the account, which is empty in a new pod: ssh finds its configuration there, and shells find our programs. Returns
/// what cannot be written. Users own the directory, which outlives the container, so nothing in it may keep sshd from starting.
#[must_use]
pub fn prepare(home: &Path, files: &Path) -> Vec<Error> {
    let parts = [(".ssh", ssh(home, files)), (".profile", profile(home))];
    let failed = parts
        .into_iter()
        .filter_map(|(name, made)| Some((name, made.err()?)));
    failed
        .map(|(name, source)| Error::Home {
            path: home.join(name),
            source,
        })
        .collect()
}

fn ssh(home: &Path, files: &Path) -> io::Result<()> {
    let ssh = home.join(".ssh");
    make_own_directory(&ssh)?;
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o700))?;
    unless_there(symlink(files.join(SSH_CONFIG), ssh.join("config")))
}

/// Makes a directory; moves anything else at its path aside, such as a link or the directory of another user.
fn make_own_directory(directory: &Path) -> io::Result<()> {
    match fs::symlink_metadata(directory) {
        Ok(there) if there.is_dir() && there.uid() == getuid().as_raw() => return Ok(()),
        Ok(_) => fs::rename(directory, directory.with_extension("aside"))
            .or_else(|_| fs::remove_file(directory))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::create_dir(directory)
}

/// Writes a profile that sets `PATH`, since the files that a shell reads first may change the one that sshd sets. An existing profile stays, also
/// a link.
fn profile(home: &Path) -> io::Result<()> {
    let opened = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(home.join(".profile"));
    unless_there(opened.and_then(|mut file| file.write_all(format!("PATH={TOOLS}:$PATH\n").as_bytes())))
}

fn unless_there(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_has_its_name_and_number() {
        let root = "root:x:0:0:root:/root:/bin/bash\n";
        for (line, expected) in [
            ("ubuntu:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash", true),
            ("ubuntu:x:1001:1000:Ubuntu:/home/ubuntu:/bin/bash", false),
            ("debian:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash", false),
            ("", false),
        ] {
            assert_eq!(has_account(&format!("{root}{line}\n")), expected, "{line}");
        }
    }

    #[test]
    fn a_directory_is_prepared_again_after_a_restart() {
        let home = tempfile::tempdir().unwrap();
        let files = Path::new("/etc/opt/sip");
        assert!(prepare(home.path(), files).is_empty());
        fs::write(home.path().join(".profile"), "mine\n").unwrap();
        assert!(prepare(home.path(), files).is_empty());
        assert_eq!(
            fs::read_to_string(home.path().join(".profile")).unwrap(),
            "mine\n"
        );
        let config = fs::read_link(home.path().join(".ssh/config")).unwrap();
        assert_eq!(config, Path::new("/etc/opt/sip/ssh_config"));
    }
    #[test]
    fn nothing_in_the_directory_is_an_obstacle() {
        let files = Path::new("/etc/opt/sip");
        let elsewhere = tempfile::tempdir().unwrap();
        let obstacles: [fn(&Path, &Path); 3] = [
            |ssh, _| fs::write(ssh, "mine\n").unwrap(),
            |ssh, _| symlink("/absent/directory", ssh).unwrap(),
            |ssh, elsewhere| symlink(elsewhere, ssh).unwrap(),
        ];
        for put in obstacles {
            let home = tempfile::tempdir().unwrap();
            let ssh = home.path().join(".ssh");
            put(&ssh, elsewhere.path());
            symlink("/absent/file", home.path().join(".profile")).unwrap();
            assert!(prepare(home.path(), files).is_empty());
            assert!(fs::symlink_metadata(&ssh).unwrap().is_dir());
            assert!(fs::symlink_metadata(home.path().join(".ssh.aside")).is_ok());
            // A second time, where something is in the place beside it too.
            fs::remove_dir_all(&ssh).unwrap();
            fs::remove_file(home.path().join(".ssh.aside")).unwrap();
            fs::create_dir(home.path().join(".ssh.aside")).unwrap();
            put(&ssh, elsewhere.path());
            assert!(prepare(home.path(), files).is_empty());
            assert!(fs::symlink_metadata(&ssh).unwrap().is_dir());
        }
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let home = tempfile::tempdir().unwrap().path().join("absent");
        let failed = prepare(&home, Path::new("/etc/opt/sip"));
        let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed[0].ends_with("absent/.ssh cannot be written"), "{failed:?}");
    }
}
