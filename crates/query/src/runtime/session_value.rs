//! Values of a session in its configuration, the only part of a session that planning rules and functions see.

/// Makes a type an extension of DataFusion's configuration under a name. Unlike other extensions, it has no settings:
/// users can neither see nor set it.
macro_rules! session_value {
    ($value:ty, $name:literal) => {
        impl datafusion::common::config::ConfigExtension for $value {
            const PREFIX: &'static str = $name;
        }

        impl datafusion::common::config::ExtensionOptions for $value {
            fn as_any(&self) -> &dyn std::any::Any {
                self
            }

            fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
                self
            }

            fn cloned(&self) -> Box<dyn datafusion::common::config::ExtensionOptions> {
                Box::new(self.clone())
            }

            fn set(&mut self, key: &str, _value: &str) -> datafusion::common::Result<()> {
                datafusion::common::plan_err!("unrecognized configuration parameter \"{}.{key}\"", $name)
            }

            fn entries(&self) -> Vec<datafusion::common::config::ConfigEntry> {
                Vec::new()
            }
        }
    };
}

pub(crate) use session_value;
