//! A configuration as text, which is read back before anybody uses it.

use serde_json::Value;

use super::{Config, SourceConfig};
use crate::dex::yaml;

/// Why a configuration is not written. The message contains nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It cannot be written as text.
    #[error("it cannot be written as JSON")]
    Written(serde_json::Error),
    /// The text is not a configuration.
    #[error("the Dex configuration that the agent wrote cannot be parsed (column {}): report this bug of the agent", .0.column())]
    Read(serde_json::Error),
    /// The text is another configuration.
    #[error(
        "the Dex configuration that the agent wrote parses to different values: report this bug of the agent"
    )]
    Different,
}

impl Config {
    /// What Dex reads as this configuration: JSON, which is YAML too. It was read back.
    ///
    /// # Errors
    /// When it cannot be written, or is not read as this configuration.
    pub fn to_text(&self) -> Result<String, Unreadable> {
        let text = yaml::text(self).map_err(Unreadable::Written)?;
        self.confirm(&text)?;
        Ok(text)
    }

    /// Checks that the text parses to this configuration.
    pub(in crate::dex) fn confirm(&self, text: &str) -> Result<(), Unreadable> {
        let read = Self::from_text(text).map_err(Unreadable::Read)?;
        let value: Value = serde_json::from_str(text).map_err(Unreadable::Read)?;
        let own = serde_json::to_value(self).map_err(Unreadable::Written)?;
        if value == own && self.is_read_as(&read) {
            Ok(())
        } else {
            Err(Unreadable::Different)
        }
    }

    /// Whether both have the same meaning. A raw connector may be parsed as a typed one, so only the values are compared.
    fn is_read_as(&self, read: &Self) -> bool {
        let rest = |config: &Self| Self {
            connectors: Vec::new(),
            ..config.clone()
        };
        let mut connectors = self.connectors.iter().zip(&read.connectors);
        self.connectors.len() == read.connectors.len()
            && connectors.all(|(own, read)| matches!(own.source, SourceConfig::Raw { .. }) || own == read)
            && rest(self) == rest(read)
    }

    /// Reads what [`Self::to_text`] has written.
    ///
    /// # Errors
    /// When it is something else.
    pub fn from_text(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}
