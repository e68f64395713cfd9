//! DataFusion's functions of text that PostgreSQL also has for bytes, and `substring` with a pattern.
//!
//! ```text
//!   btrim(text, text)               computed by DataFusion
//!   btrim(bytea, bytea)             see byte_strings.rs
//!   substring(text, integer)        computed by DataFusion
//!   substring(text, text [, text])  see patterns.rs
//! ```

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::super::bytes::is_bytes;
use super::super::dates::is_text;
use super::byte_strings::OF_TEXT;
use super::definition::Definition;
use super::substring::SUBSTRING;

/// Replaces the functions among `functions`. Returns the planner of their SQL syntax, such as `position(a IN b)`, for
/// which DataFusion's planner would use its own functions.
pub(super) fn replace(functions: &mut [Arc<ScalarUDF>]) -> StringSyntax {
    for function in functions.iter_mut() {
        let of_bytes = OF_TEXT.iter().find(|definition| definition.name == function.name());
        if let Some(of_bytes) = of_bytes {
            let of_patterns = (function.name() == SUBSTRING.name).then_some(&SUBSTRING);
            let engine = Arc::clone(function);
            let signature = Signature::user_defined(Volatility::Immutable);
            *function = Arc::new(ScalarUDF::new_from_impl(Overloaded { engine, of_bytes, of_patterns, signature }));
        }
    }
    let named = |name: &str| functions.iter().rfind(|function| function.name() == name).cloned();
    StringSyntax { position: named("strpos"), substring: named("substr"), overlay: named("overlay") }
}

/// One of DataFusion's functions, and the functions of the same name for other arguments.
#[derive(Debug)]
struct Overloaded {
    engine: Arc<ScalarUDF>,
    of_bytes: &'static Definition,
    of_patterns: Option<&'static Definition>,
    signature: Signature,
}

impl Overloaded {
    /// Returns the function for arguments of these types. Returns `None` for those of DataFusion's function.
    fn other(&self, types: &[DataType]) -> Option<&'static Definition> {
        if types.iter().any(is_bytes) {
            return Some(self.of_bytes);
        }
        self.of_patterns.filter(|_| types.iter().skip(1).any(is_text))
    }
}

impl PartialEq for Overloaded {
    fn eq(&self, other: &Self) -> bool {
        self.engine == other.engine
    }
}

impl Eq for Overloaded {}

impl Hash for Overloaded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.engine.hash(state);
    }
}

impl ScalarUDFImpl for Overloaded {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(other) = self.other(types) {
            return other.coerced(types);
        }
        let field = |part: &DataType| -> FieldRef { Arc::new(Field::new(self.name(), part.clone(), true)) };
        let fields = fields_with_udf(&types.iter().map(field).collect::<Vec<_>>(), self.engine.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.other(types) {
            Some(other) => Ok((other.result)(types)),
            None => self.engine.return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        match self.other(&types) {
            Some(other) => Ok(Arc::new(Field::new(self.name(), (other.result)(&types), true))),
            None => self.engine.return_field_from_args(args),
        }
    }

    fn is_strict(&self) -> bool {
        self.engine.is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        match self.other(&types) {
            Some(other) => other.invoke(&args),
            None => self.engine.invoke_with_args(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.engine.documentation()
    }
}

/// Planner of `position(a IN b)`, `substring(a FROM b FOR c)` and `overlay(a PLACING b FROM c)`.
#[derive(Debug)]
pub(super) struct StringSyntax {
    position: Option<Arc<ScalarUDF>>,
    substring: Option<Arc<ScalarUDF>>,
    overlay: Option<Arc<ScalarUDF>>,
}

impl ExprPlanner for StringSyntax {
    fn plan_position(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(planned(self.position.as_deref(), args))
    }

    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(planned(self.substring.as_deref(), args))
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(planned(self.overlay.as_deref(), args))
    }
}

fn planned(function: Option<&ScalarUDF>, args: Vec<Expr>) -> PlannerResult<Vec<Expr>> {
    match function {
        Some(function) => PlannerResult::Planned(function.call(args)),
        None => PlannerResult::Original(args),
    }
}
