//! `current_schema` and `current_schemas`. They read the schemas of the session from the configuration with which a
//! statement was planned.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::runtime::session_value::session_value;

/// The schemas of a database, as a session sees them.
pub trait Schemas: Debug + Send + Sync {
    /// Returns the schemas of the search path that exist, in order.
    fn searched(&self) -> Vec<String>;
}

/// Access to the schemas of a session. It is stored in the session's configuration, but users cannot set it.
#[derive(Clone, Debug)]
pub struct SchemaAccess(pub Arc<dyn Schemas>);

session_value!(SchemaAccess, "schemas");

/// Adds `current_schema` and `current_schemas` to a session state.
pub fn with_schemas(mut state: SessionStateBuilder) -> SessionStateBuilder {
    let current =
        ScalarUDF::new_from_impl(SchemaFunction::new("current_schema", Signature::nullary(Volatility::Stable)));
    let all = Signature::exact(vec![DataType::Boolean], Volatility::Stable);
    let all = ScalarUDF::new_from_impl(SchemaFunction::new("current_schemas", all));
    state.scalar_functions().get_or_insert_default().extend([current, all].map(Arc::new));
    state
}

/// `current_schema()`, or `current_schemas(boolean)`, which returns a list.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SchemaFunction {
    name: &'static str,
    signature: Signature,
}

impl SchemaFunction {
    fn new(name: &'static str, signature: Signature) -> Self {
        Self { name, signature }
    }

    fn is_list(&self) -> bool {
        self.name == "current_schemas"
    }
}

impl ScalarUDFImpl for SchemaFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.is_list() {
            true => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
            false => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let searched = searched(&args.config_options)?;
        let [with_system] = args.args.as_slice() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(searched.into_iter().next())));
        };
        let with_system = with_system.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(lists(&searched, with_system.as_boolean())))
    }
}

/// Returns the list of schemas for each flag, and null for a null flag. The flag requests the schemas that PostgreSQL
/// searches implicitly, but Taut has none.
fn lists(searched: &[String], with_system: &BooleanArray) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..with_system.len() {
        searched.iter().for_each(|schema| lists.values().append_value(schema));
        lists.append(with_system.is_valid(row));
    }
    Arc::new(lists.finish())
}

fn searched(options: &ConfigOptions) -> Result<Vec<String>> {
    match options.extensions.get::<SchemaAccess>() {
        Some(SchemaAccess(schemas)) => Ok(schemas.searched()),
        None => internal_err!("schemas are known in a session only"),
    }
}
