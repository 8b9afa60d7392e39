//! Pages of lists. Items beyond a bound are skipped during parsing, so that no answer takes much more memory than its length: an empty object is
//! two bytes of an answer, and hundreds in memory.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

/// A page of a list with the first `MAX` of its items. Further items are skipped during parsing.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub struct Page<T, const MAX: usize> {
    /// Metadata of the list.
    #[serde(default)]
    pub metadata: PageMeta,
    /// The items. Required: an answer without them is no list, for example one of a gateway.
    pub items: First<T, MAX>,
}

/// Metadata of a list, as far as it is read.
#[derive(Debug, Default, Deserialize)]
pub struct PageMeta {
    /// Token for the next page; absent or empty in the last page.
    #[serde(default, rename = "continue")]
    pub next: Option<String>,
}

/// The first `MAX` of a list, which may be null.
#[derive(Debug)]
pub struct First<T, const MAX: usize>(pub Vec<T>);

impl<T, const MAX: usize> Default for First<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for First<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FirstVisitor(PhantomData))
    }
}

struct FirstVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for FirstVisitor<T, MAX> {
    type Value = First<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(First::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut first = Vec::new();
        while first.len() < MAX {
            match list.next_element()? {
                Some(element) => first.push(element),
                None => return Ok(First(first)),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(First(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_of_a_list_is_kept_than_its_bound() {
        for (text, expected) in [
            ("null", &[][..]),
            ("[]", &[]),
            ("[1]", &[1]),
            ("[1, 2]", &[1, 2]),
            (r#"[1, 2, 3, "four"]"#, &[1, 2]),
        ] {
            let First(kept) = serde_json::from_str::<First<u8, 2>>(text).unwrap();
            assert_eq!(kept, expected, "{text}");
        }
        assert!(serde_json::from_str::<First<u8, 2>>(r#"{"a": 1}"#).is_err());
        let bare: Page<u8, 2> = serde_json::from_str(r#"{"items": null}"#).unwrap();
        assert!(bare.items.0.is_empty() && bare.metadata.next.is_none());
        assert!(serde_json::from_str::<Page<u8, 2>>("{}").is_err());
    }
}
