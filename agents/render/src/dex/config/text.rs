//! A configuration as text, which is read back before anybody uses it.

use serde_json::Value;

use super::{Config, SourceConfig};
use crate::dex::yaml;

/// Why the agent does not write a configuration. The message quotes nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration cannot be serialized.
    #[error("the agent cannot write the Dex configuration as JSON: report this bug of the agent")]
    Serialize(serde_json::Error),
    /// The text cannot be parsed as a configuration.
    #[error("the Dex configuration that the agent wrote cannot be parsed (column {}): report this bug of the agent", .0.column())]
    Parse(serde_json::Error),
    /// The text parses to another configuration.
    #[error(
        "the Dex configuration that the agent wrote parses to different values: report this bug of the agent"
    )]
    Mismatch,
}

impl Config {
    /// The text that Dex reads as this configuration: JSON, which is YAML too. It was parsed again and compared.
    ///
    /// # Errors
    /// When it cannot be serialized, or does not parse to this configuration.
    pub fn to_text(&self) -> Result<String, ConfigError> {
        let text = yaml::text(self).map_err(ConfigError::Serialize)?;
        self.verify(&text)?;
        Ok(text)
    }

    /// Checks that the text parses to this configuration.
    pub(in crate::dex) fn verify(&self, text: &str) -> Result<(), ConfigError> {
        let read = Self::from_text(text).map_err(ConfigError::Parse)?;
        let value: Value = serde_json::from_str(text).map_err(ConfigError::Parse)?;
        let own = serde_json::to_value(self).map_err(ConfigError::Serialize)?;
        if value == own && self.is_read_as(&read) {
            Ok(())
        } else {
            Err(ConfigError::Mismatch)
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

    /// Parses what [`Self::to_text`] has written.
    ///
    /// # Errors
    /// When the text is not such a configuration.
    pub fn from_text(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}
