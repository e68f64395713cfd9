//! A value that a crate above this one attaches to a parsed statement, such as its plan cache entry.

use std::any::Any;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, OnceLock};

/// Holds one value. Clones of a statement share it.
#[derive(Clone, Default)]
pub struct Attachment(Arc<OnceLock<Box<dyn Any + Send + Sync>>>);

impl Attachment {
    /// Returns a clone of the attached value. The first call attaches the default value of type `T`.
    pub fn get_or_default<T: Any + Clone + Default + Send + Sync>(&self) -> T {
        let attached = self.0.get_or_init(|| Box::<T>::default());
        attached.downcast_ref().cloned().unwrap_or_default()
    }
}

impl Debug for Attachment {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Attachment")
    }
}
