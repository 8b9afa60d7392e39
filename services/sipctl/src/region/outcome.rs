//! What a command that changes something did.

/// What a command has to print, and whether it was refused.
#[derive(Debug)]
pub struct Outcome {
    /// What will happen, and what has.
    pub text: String,
    /// Why not, if it was refused.
    pub refusal: Option<String>,
}

/// Ends the text of a command that changed nothing because of `--dry-run`.
pub(crate) const DRY_RUN: &str = "Nothing was changed: --dry-run.\n";

impl Outcome {
    pub(crate) fn refused(text: String, refusal: String) -> Self {
        Self {
            text,
            refusal: Some(refusal),
        }
    }

    pub(crate) fn done(text: String) -> Self {
        Self { text, refusal: None }
    }
}
