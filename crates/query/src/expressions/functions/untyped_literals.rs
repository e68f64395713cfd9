//! Functions that return one of their arguments, such as `coalesce`. A string literal among the arguments has the type
//! of the others:
//!
//! ```text
//!   coalesce(day, '2024-01-05')    date
//! ```
//!
//! DataFusion determines the type of a call before the literal is cast (`expressions/operand_types.rs`), and finds no
//! common type of dates and text.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::super::bytes::is_bytes;

/// The functions.
const NAMES: [&str; 5] = ["coalesce", "greatest", "least", "nullif", "nvl"];

/// Replaces the functions among `functions`.
pub(super) fn replace(functions: &mut [Arc<ScalarUDF>]) {
    for function in functions.iter_mut().filter(|function| NAMES.contains(&function.name())) {
        let engine = Arc::clone(function);
        let signature = Signature::user_defined(Volatility::Immutable);
        *function = Arc::new(ScalarUDF::new_from_impl(WithLiterals { engine, signature }));
    }
}

/// One of DataFusion's functions, whose text arguments may have the type of the other arguments.
#[derive(Debug)]
struct WithLiterals {
    engine: Arc<ScalarUDF>,
    signature: Signature,
}

impl PartialEq for WithLiterals {
    fn eq(&self, other: &Self) -> bool {
        self.engine == other.engine
    }
}

impl Eq for WithLiterals {}

impl Hash for WithLiterals {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.engine.hash(state);
    }
}

impl WithLiterals {
    /// The types to which DataFusion casts arguments.
    fn engine_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let fields: Vec<FieldRef> =
            types.iter().map(|part| Arc::new(Field::new(self.name(), part.clone(), true))).collect();
        let fields = fields_with_udf(&fields, self.engine.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }
}

impl ScalarUDFImpl for WithLiterals {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engine.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.engine.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |part: &DataType| matches!(part, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let has_type = |part: &DataType| *part == DataType::Boolean || part.is_temporal() || is_bytes(part);
        match types.iter().any(has_type) {
            true => {
                let untyped = types.iter().map(|part| if is_text(part) { DataType::Null } else { part.clone() });
                self.engine_types(&untyped.collect::<Vec<_>>())
            }
            false => self.engine_types(types),
        }
    }

    fn simplify(&self, mut args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // Null equals nothing, so the other argument is not computed, which could fail.
        if self.name() == "nullif" && matches!(&args[0], Expr::Literal(value, _) if value.is_null()) {
            return Ok(ExprSimplifyResult::Simplified(args.swap_remove(0)));
        }
        self.engine.simplify(args, info)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.engine.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.engine.short_circuits()
    }

    fn is_strict(&self) -> bool {
        self.engine.is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.engine.invoke_with_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.engine.documentation()
    }
}
