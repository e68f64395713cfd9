//! Declaration of a function of PostgreSQL or DuckDB: its name, the types of its arguments, and the computation of a
//! column of results.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use taut_types::LogicalType;

use super::super::bytes::is_bytes;
use super::super::dates::{is_difference, is_temporal, is_text};

/// Type of an argument that a function accepts. The descriptions have the accepted types, then the type to which the
/// argument is cast. Null is always accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentType {
    Text,
    Bytes,
    Boolean,
    /// An integer, as a bigint.
    Integer,
    /// Any number, as double precision.
    Double,
    /// A floating-point number, in its own type.
    Floating,
    /// An integer or a decimal, in its own type.
    Exact,
    Date,
    /// A date, a timestamp or text, as a timestamp without time zone.
    Timestamp,
    /// A date, a timestamp or text, as a timestamp. It has a time zone if the argument has one.
    DateOrTimestamp,
    /// A date, a time, a timestamp, an interval or a difference of two timestamps, in its own type.
    Temporal,
    /// An interval or a difference of two timestamps, in its own type, or text, as an interval.
    Interval,
    /// An array, in its own type.
    List,
    /// A value of any type.
    Any,
    /// A value of any type except bytes and nested types, as text.
    AsText,
    /// Any number of further arguments: booleans in their own type, other values as [`Self::AsText`]. Must be last in a
    /// list of arguments.
    VariadicText,
    /// Any number of further arguments of any types. Must be last in a list of arguments.
    VariadicAny,
}

impl ArgumentType {
    /// Returns the type to which an argument of the type `from` is cast. Returns `None` if the type is not accepted.
    fn accepted(self, from: &DataType) -> Option<DataType> {
        if *from == DataType::Null {
            return Some(self.type_of_null());
        }
        let own_if = |condition: bool| condition.then(|| from.clone());
        match self {
            Self::Text => is_text(from).then_some(DataType::Utf8View),
            Self::Bytes => is_bytes(from).then_some(DataType::BinaryView),
            Self::Boolean => own_if(*from == DataType::Boolean),
            Self::Integer => from.is_integer().then_some(DataType::Int64),
            Self::Double => from.is_numeric().then_some(DataType::Float64),
            Self::Floating => own_if(from.is_floating()),
            Self::Exact => own_if(from.is_integer() || matches!(from, DataType::Decimal128(..))),
            Self::Date => (*from == DataType::Date32).then(|| from.clone()),
            Self::Timestamp => (matches!(from, DataType::Date32 | DataType::Timestamp(..)) || is_text(from))
                .then(|| self.type_of_null()),
            Self::DateOrTimestamp => match from {
                DataType::Timestamp(_, Some(_)) => Some(LogicalType::TimestampTz.arrow()),
                _ => Self::Timestamp.accepted(from),
            },
            Self::Temporal => own_if(is_temporal(from) || is_difference(from)),
            Self::Interval if is_text(from) => Some(self.type_of_null()),
            Self::Interval => own_if(matches!(from, DataType::Interval(_) | DataType::Duration(_))),
            Self::List => own_if(matches!(from, DataType::List(_))),
            Self::Any | Self::VariadicAny => Some(from.clone()),
            Self::VariadicText if *from == DataType::Boolean => Some(from.clone()),
            // DataFusion's casts do not write bytes and arrays as PostgreSQL does.
            Self::AsText | Self::VariadicText => (!is_bytes(from) && !from.is_nested()).then_some(DataType::Utf8View),
        }
    }

    fn type_of_null(self) -> DataType {
        match self {
            Self::Text | Self::AsText | Self::VariadicText => DataType::Utf8View,
            Self::Bytes => DataType::BinaryView,
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Double | Self::Floating => DataType::Float64,
            Self::Exact => DataType::Decimal128(38, 0),
            Self::Date => DataType::Date32,
            Self::Timestamp | Self::DateOrTimestamp | Self::Temporal => LogicalType::Timestamp.arrow(),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::List => DataType::List(Arc::new(Field::new_list_field(DataType::Null, true))),
            Self::Any | Self::VariadicAny => DataType::Null,
        }
    }
}

/// Result types of functions that always return the same type.
pub(super) mod result {
    use super::{DataType, Field, IntervalUnit, LogicalType, TimeUnit};
    use std::sync::Arc;

    pub fn boolean(_types: &[DataType]) -> DataType {
        DataType::Boolean
    }
    pub fn integer(_types: &[DataType]) -> DataType {
        DataType::Int32
    }
    pub fn bigint(_types: &[DataType]) -> DataType {
        DataType::Int64
    }
    pub fn double(_types: &[DataType]) -> DataType {
        DataType::Float64
    }
    pub fn text(_types: &[DataType]) -> DataType {
        DataType::Utf8View
    }
    pub fn bytes(_types: &[DataType]) -> DataType {
        DataType::BinaryView
    }
    pub fn texts(_types: &[DataType]) -> DataType {
        DataType::List(Arc::new(Field::new_list_field(DataType::Utf8View, true)))
    }
    pub fn date(_types: &[DataType]) -> DataType {
        DataType::Date32
    }
    pub fn time(_types: &[DataType]) -> DataType {
        DataType::Time64(TimeUnit::Nanosecond)
    }
    pub fn timestamp(_types: &[DataType]) -> DataType {
        LogicalType::Timestamp.arrow()
    }
    pub fn timestamptz(_types: &[DataType]) -> DataType {
        LogicalType::TimestampTz.arrow()
    }
    pub fn interval(_types: &[DataType]) -> DataType {
        DataType::Interval(IntervalUnit::MonthDayNano)
    }
}

/// Declaration of a function.
#[derive(Debug)]
pub(super) struct Definition {
    pub name: &'static str,
    /// Argument lists that the function accepts. A call uses the first list that matches.
    pub arguments: &'static [&'static [ArgumentType]],
    /// Returns the type of the result for arguments of these types.
    pub result: fn(&[DataType]) -> DataType,
    /// Computes the results from arrays of equal length. The caller casts the results to the result type.
    pub compute: fn(&[ArrayRef]) -> Result<ArrayRef>,
}

impl Definition {
    /// Returns the function. If it replaces a function in `engine`, it has the aliases of that function. Without the
    /// aliases, a copied session state would contain DataFusion's function again under this name.
    pub fn udf(&'static self, engine: &[Arc<ScalarUDF>]) -> Arc<ScalarUDF> {
        let replaced = engine.iter().find(|function| function.name() == self.name);
        let aliases = replaced.map_or_else(Vec::new, |function| function.aliases().to_vec());
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(DeclaredFunction { definition: self, aliases, signature }))
    }

    /// Computes the result of a call, whose arguments have the types of [`Self::coerced`].
    ///
    /// # Errors
    /// If the computation fails.
    pub fn invoke(&self, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let arguments = args.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let results = (self.compute)(&arguments)?;
        let results = cast(&results, args.return_field.data_type())?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?),
            false => ColumnarValue::Array(results),
        })
    }

    /// Returns the types to which arguments are cast.
    ///
    /// # Errors
    /// If no argument list accepts the types.
    pub fn coerced(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match self.accepted(types) {
            Some(accepted) => Ok(accepted),
            None => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                plan_err!(
                    "No function matches the given name and argument types '{}({})'.",
                    self.name,
                    types.join(", ")
                )
            }
        }
    }

    /// Returns the types to which arguments are cast. Returns `None` if no argument list accepts them.
    fn accepted(&self, types: &[DataType]) -> Option<Vec<DataType>> {
        self.arguments.iter().find_map(|arguments| {
            let is_variadic =
                |argument: &&ArgumentType| matches!(argument, ArgumentType::VariadicText | ArgumentType::VariadicAny);
            let more = arguments.last().filter(is_variadic);
            let named = arguments.len() - usize::from(more.is_some());
            if types.len() < named || (types.len() > named && more.is_none()) {
                return None;
            }
            let argument = |index: usize| arguments.get(index).or(more).copied().unwrap_or(ArgumentType::Any);
            types.iter().enumerate().map(|(index, data_type)| argument(index).accepted(data_type)).collect()
        })
    }
}

/// The function that a [`Definition`] declares.
#[derive(Debug)]
struct DeclaredFunction {
    definition: &'static Definition,
    aliases: Vec<String>,
    signature: Signature,
}

impl PartialEq for DeclaredFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for DeclaredFunction {}

impl Hash for DeclaredFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for DeclaredFunction {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.definition.coerced(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok((self.definition.result)(types))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.definition.invoke(&args)
    }
}

/// Returns the strings of an argument that is [`ArgumentType::Text`].
pub(super) fn texts(argument: &ArrayRef) -> &StringViewArray {
    argument.as_string_view()
}

/// Applies `compute` to each string. The result is null for a null, or if `compute` returns `None`.
pub(super) fn map_text(argument: &ArrayRef, compute: impl Fn(&str) -> Result<Option<String>>) -> Result<ArrayRef> {
    let results = texts(argument).iter().map(|text| text.map_or(Ok(None), &compute));
    Ok(Arc::new(results.collect::<Result<StringViewArray>>()?))
}

/// Collects booleans into an array.
pub(super) fn booleans(values: impl Iterator<Item = Option<bool>>) -> ArrayRef {
    Arc::new(values.collect::<BooleanArray>())
}

/// Collects integers into an array.
pub(super) fn integers(values: impl Iterator<Item = Result<Option<i32>>>) -> Result<ArrayRef> {
    Ok(Arc::new(values.collect::<Result<Int32Array>>()?))
}

/// Iterates over the indexes of the rows. Returns `None` for a row in which an argument is null.
pub(super) fn complete_rows(arguments: &[ArrayRef]) -> impl Iterator<Item = Option<usize>> {
    let is_complete = |row: usize| arguments.iter().all(|argument| argument.is_valid(row));
    (0..arguments[0].len()).map(move |row| is_complete(row).then_some(row))
}
