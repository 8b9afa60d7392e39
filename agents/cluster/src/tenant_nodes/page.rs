//! Pages of lists. What a server lists beyond a bound is passed over while it is parsed, so that no answer takes much more memory than its length.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

/// Most Nodes of a cluster, and most pods of a Node, that are read.
pub(super) const MOST: usize = 2_000;

/// A page of a list. What else an object has is passed over while it is parsed.
#[derive(Deserialize)]
pub(super) struct Page<T> {
    #[serde(default)]
    pub(super) metadata: PageMeta,
    /// One more than may be, to notice that there are too many.
    #[serde(default = "First::default")]
    pub(super) items: First<T, { MOST + 1 }>,
}

#[derive(Default, Deserialize)]
pub(super) struct PageMeta {
    #[serde(default, rename = "continue")]
    pub(super) next: Option<String>,
}

/// The first `MOST` of a list, which may be null.
pub(super) struct First<T, const MOST: usize>(pub(super) Vec<T>);

impl<T, const MOST: usize> Default for First<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for First<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FirstVisitor(PhantomData))
    }
}

struct FirstVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for FirstVisitor<T, MOST> {
    type Value = First<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(First::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut first = Vec::new();
        while first.len() < MOST {
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
        let bare: Page<u8> = serde_json::from_str("{}").unwrap();
        assert!(bare.items.0.is_empty() && bare.metadata.next.is_none());
    }
}
