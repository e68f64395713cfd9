//! `pg_sleep(seconds)`. The result is an empty string, which is how PostgreSQL shows the result of a function that
//! returns nothing.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::super::dates::is_text;
use crate::runtime::cancellation::Cancellation;

/// Maximum time for which a cancelled statement sleeps on.
const STEP: Duration = Duration::from_millis(10);

/// Returns the function for one statement. It ends when the statement is cancelled.
pub fn pg_sleep(cancellation: Cancellation) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Volatile);
    Arc::new(ScalarUDF::new_from_impl(Sleep { cancellation, signature }))
}

#[derive(Debug)]
struct Sleep {
    cancellation: Cancellation,
    signature: Signature,
}

impl PartialEq for Sleep {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Sleep {}

impl Hash for Sleep {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &'static str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [seconds] if seconds.is_numeric() || seconds.is_null() || is_text(seconds) => Ok(vec![DataType::Float64]),
            _ => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                plan_err!("No function matches the given name and argument types 'pg_sleep({})'.", types.join(", "))
            }
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let seconds: ArrayRef = cast(&args.args[0].to_array(args.number_rows)?, &DataType::Float64)?;
        for seconds in seconds.as_primitive::<Float64Type>().iter().flatten() {
            sleep(seconds, &self.cancellation)?;
        }
        let results = (0..seconds.len()).map(|row| seconds.is_valid(row).then_some(""));
        Ok(ColumnarValue::Array(Arc::new(results.collect::<StringViewArray>())))
    }
}

/// Blocks the thread. Does not block it for a negative number or NaN.
///
/// # Errors
/// If the statement is cancelled.
fn sleep(seconds: f64, cancellation: &Cancellation) -> Result<()> {
    let began = Instant::now();
    loop {
        cancellation.check()?;
        let left = seconds - began.elapsed().as_secs_f64();
        if left.is_nan() || left <= 0.0 {
            return Ok(());
        }
        thread::sleep(STEP.min(Duration::try_from_secs_f64(left).unwrap_or(STEP)));
    }
}
