//! One label key of all hosts: which values there are, who has which, and each host's value.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;
use vocabulary::LabelValue;

use super::rank::Ranks;
use super::set::{SMALL_SET_BYTES, Set, Slot, at};
use super::size::{VECTOR_GROWTH, entry, text as text_bytes};

/// A number of a value in its [`Column`]; given again after no host has the value.
pub(crate) type Value = u32;

/// No value.
pub(crate) const NONE: Value = Value::MAX;

/// Bytes of a value.
pub(super) const ENTRY_BYTES: usize = size_of::<Entry>();
/// Bytes of a value that no other host has.
pub(super) const VALUE_BYTES: usize =
    VECTOR_GROWTH * ENTRY_BYTES + entry(size_of::<(LabelValue, Value)>()) + SMALL_SET_BYTES;

#[derive(Debug, Clone, Default)]
pub(crate) struct Column {
    numbers: BTreeMap<LabelValue, Value>,
    values: Vec<Entry>,
    unused: Vec<Value>,
    /// Bytes of the texts of values.
    texts: usize,
    exists: Set,
    not_empty: Set,
    /// The value of each slot, while many hosts have the key; `None` while few do: then the host's own labels have it.
    of: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    text: LabelValue,
    hosts: Set,
}

impl Column {
    pub(crate) fn exists(&self) -> &Set {
        &self.exists
    }

    /// The hosts for which the key names a topology domain.
    pub(crate) fn not_empty(&self) -> &Set {
        &self.not_empty
    }

    pub(crate) fn hosts(&self, value: &str) -> Option<&Set> {
        let number = self.numbers.get(value)?;
        self.values.get(at(*number)).map(|entry| &entry.hosts)
    }

    pub(crate) fn number(&self, value: &str) -> Option<Value> {
        self.numbers.get(value).copied()
    }

    pub(crate) fn text(&self, value: Value) -> Option<&LabelValue> {
        self.values.get(at(value)).map(|entry| &entry.text)
    }

    /// The values by number with their hosts; a number that is not in use has none.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Value, &Set)> {
        (0..).zip(self.values.iter().map(|entry| &entry.hosts))
    }

    /// The hosts of a mask that have a value.
    pub(crate) fn hosts_of<'a>(
        &'a self,
        value: Value,
        mask: &'a FixedBitSet,
    ) -> impl Iterator<Item = Slot> + 'a {
        let hosts = self.values.get(at(value)).map(|entry| &entry.hosts);
        hosts.into_iter().flat_map(|hosts| hosts.among(mask))
    }

    /// Whether any of these hosts has a value.
    pub(crate) fn has(&self, value: Value, hosts: &FixedBitSet) -> bool {
        self.values
            .get(at(value))
            .is_some_and(|entry| entry.hosts.meets(hosts))
    }

    /// How many different values these hosts have. Most often a domain's first host answers for it, so this is far
    /// less than looking at each host.
    pub(crate) fn values_among(&self, hosts: &FixedBitSet) -> usize {
        self.values
            .iter()
            .filter(|entry| entry.hosts.meets(hosts))
            .count()
    }

    /// About how many bytes it takes beside its key, without the hosts in its sets. Unused numbers of values take memory too.
    pub(crate) fn bytes(&self) -> usize {
        self.values.len() * VALUE_BYTES + self.texts
    }

    /// One more than the greatest number of a value.
    pub(crate) fn width(&self) -> usize {
        self.values.len()
    }

    /// The value of a slot, [`NONE`] without the label; None if only the host's own labels have it.
    pub(crate) fn value_of(&self, host: Slot) -> Option<Value> {
        self.of
            .as_ref()
            .map(|of| of.get(at(host)).copied().unwrap_or(NONE))
    }

    /// The values by slot, while many hosts have the key.
    pub(crate) fn values(&self) -> Option<&[Value]> {
        self.of.as_deref()
    }

    /// Adds a host's value. `ranks` must already have the host.
    pub(crate) fn insert(&mut self, host: Slot, text: &LabelValue, ranks: &Ranks) -> Value {
        let value = self
            .numbers
            .get(text)
            .copied()
            .unwrap_or_else(|| self.new_value(text));
        if let Some(entry) = self.values.get_mut(at(value)) {
            entry.hosts.insert(host, ranks);
        }
        self.exists.insert(host, ranks);
        if !text.is_empty() {
            self.not_empty.insert(host, ranks);
        }
        self.note(host, value, ranks.width());
        value
    }

    /// Removes a host's value. `ranks` must still have the host.
    pub(crate) fn remove(&mut self, host: Slot, value: Value, ranks: &Ranks) {
        if let Some(entry) = self.values.get_mut(at(value)) {
            entry.hosts.remove(host, ranks);
            if entry.hosts.is_empty() {
                self.numbers.remove(&entry.text);
                self.texts -= text_bytes(entry.text.as_str().len());
                *entry = Entry::default();
                self.unused.push(value);
            }
        }
        self.exists.remove(host, ranks);
        self.not_empty.remove(host, ranks);
        self.note(host, NONE, ranks.width());
    }

    fn new_value(&mut self, text: &LabelValue) -> Value {
        self.texts += text_bytes(text.as_str().len());
        let entry = Entry {
            text: text.clone(),
            hosts: Set::default(),
        };
        let value = if let Some(value) = self.unused.pop() {
            self.values[at(value)] = entry;
            value
        } else {
            self.values.push(entry);
            super::set::slot(self.values.len() - 1)
        };
        self.numbers.insert(text.clone(), value);
        value
    }

    fn note(&mut self, host: Slot, value: Value, site: usize) {
        if self.exists.len() * 16 < site {
            self.of = None;
        } else if let Some(of) = &mut self.of {
            if of.len() <= at(host) {
                of.resize(at(host) + 1, NONE);
            }
            of[at(host)] = value;
        } else if self.exists.len() * 8 >= site {
            self.of = Some(self.all_values(site));
        }
    }

    fn all_values(&self, site: usize) -> Vec<Value> {
        let mut of = vec![NONE; site];
        for value in self.numbers.values() {
            let mut hosts = FixedBitSet::with_capacity(site);
            if let Some(entry) = self.values.get(at(*value)) {
                match &entry.hosts {
                    Set::Few(slots) => slots.iter().for_each(|host| of[at(*host)] = *value),
                    Set::Many { bits, .. } => {
                        hosts.union_with(bits);
                        hosts.ones().for_each(|host| of[host] = *value);
                    }
                }
            }
        }
        of
    }
}
