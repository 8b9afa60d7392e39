//! What is accepted, and every rule with the message that a person reads.

mod accepted;
mod hostile;
mod refused;
