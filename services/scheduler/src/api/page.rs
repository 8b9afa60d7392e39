//! Pages: sizes and opaque tokens.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{error::Error, violation::Violation};

/// Entries in a page when the caller names no size.
const USUAL: usize = 100;
/// Most entries in a page.
const MOST: usize = 1000;

/// How many entries the caller gets: 0 means 100, more than 1,000 means 1,000.
///
/// # Errors
/// When the size is negative.
pub(crate) fn size(asked: i32) -> Result<usize, Error> {
    match usize::try_from(asked) {
        Ok(0) => Ok(USUAL),
        Ok(size) => Ok(size.min(MOST)),
        Err(_) => Err(Error::Invalid(vec![Violation::new(
            "page_size",
            format_args!("{asked} must not be negative"),
        )])),
    }
}

/// A token after the entry that `parts` name. Opaque to callers.
pub(crate) fn token(parts: &[&str]) -> String {
    URL_SAFE_NO_PAD.encode(parts.join("\n"))
}

/// The parts of a token that [`token`] made of `N` parts; `None` for the first page.
///
/// # Errors
/// When the token is none of ours.
pub(crate) fn parse<const N: usize>(token: &str) -> Result<Option<[String; N]>, Error> {
    if token.is_empty() {
        return Ok(None);
    }
    URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| {
            text.split('\n')
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .try_into()
                .ok()
        })
        .map(Some)
        .ok_or_else(|| {
            Error::Invalid(vec![Violation::new(
                "page_token",
                "is not a token of this method's",
            )])
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_back_its_parts_and_strange_ones_are_refused() {
        assert_eq!(
            parse(&token(&["a", "b c"])).unwrap(),
            Some(["a".to_owned(), "b c".to_owned()])
        );
        assert_eq!(parse::<2>("").unwrap(), None);
        assert!(parse::<3>(&token(&["a", "b"])).is_err());
        assert!(parse::<1>("~").is_err());
    }

    #[test]
    fn sizes_have_a_usual_and_a_largest_value() {
        assert_eq!(
            [size(0).unwrap(), size(7).unwrap(), size(5000).unwrap()],
            [100, 7, 1000]
        );
        assert!(size(-1).is_err());
    }
}
