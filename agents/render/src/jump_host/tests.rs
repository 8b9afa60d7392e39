mod fixtures;
mod hostile;
mod keys;
mod objects;
mod sshd;
