//! `random`, and `setseed`, which makes the numbers of a session repeatable. Until it is called, DataFusion computes
//! the numbers. A query that runs in several threads gives the same numbers to its rows in another order each time.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::types::{NativeType, logical_float64};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions::math::random::RandomFunc;
use datafusion::logical_expr::{
    Coercion, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    TypeSignatureClass, Volatility,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The generator of a session. None before the first call of `setseed`.
type Generator = Arc<Mutex<Option<StdRng>>>;

/// Returns `random` and `setseed` of one session.
pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    let generator = Generator::default();
    let random = Random { engine: RandomFunc::new(), generator: Arc::clone(&generator) };
    let numbers = TypeSignature::Coercible(vec![Coercion::new_implicit(
        TypeSignatureClass::Native(logical_float64()),
        vec![TypeSignatureClass::Numeric],
        NativeType::Float64,
    )]);
    let setseed = SetSeed { generator, signature: Signature::new(numbers, Volatility::Volatile) };
    [Arc::new(ScalarUDF::new_from_impl(random)), Arc::new(ScalarUDF::new_from_impl(setseed))]
}

fn is_same(left: &Generator, right: &Generator) -> bool {
    Arc::ptr_eq(left, right)
}

#[derive(Debug)]
struct Random {
    engine: RandomFunc,
    generator: Generator,
}

impl PartialEq for Random {
    fn eq(&self, other: &Self) -> bool {
        is_same(&self.generator, &other.generator)
    }
}

impl Eq for Random {}

impl Hash for Random {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for Random {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn aliases(&self) -> &[String] {
        self.engine.aliases()
    }

    fn signature(&self) -> &Signature {
        self.engine.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.engine.return_type(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut generator = self.generator.lock();
        let Some(generator) = generator.as_mut() else { return self.engine.invoke_with_args(args) };
        let mut numbers = vec![0.0; args.number_rows];
        generator.fill(numbers.as_mut_slice());
        Ok(ColumnarValue::Array(Arc::new(Float64Array::from(numbers))))
    }
}

/// `setseed(number)`, whose result is null.
#[derive(Debug)]
struct SetSeed {
    generator: Generator,
    signature: Signature,
}

impl PartialEq for SetSeed {
    fn eq(&self, other: &Self) -> bool {
        is_same(&self.generator, &other.generator)
    }
}

impl Eq for SetSeed {}

impl Hash for SetSeed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for SetSeed {
    fn name(&self) -> &'static str {
        "setseed"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let seeds = args.args[0].to_array(args.number_rows)?;
        for seed in seeds.as_primitive::<Float64Type>().iter().flatten() {
            if !(-1.0..=1.0).contains(&seed) {
                return exec_err!("setseed parameter {seed} is out of allowed range [-1,1]");
            }
            let mut generator = self.generator.lock();
            // Zero and minus zero are one seed.
            *generator = Some(StdRng::seed_from_u64((seed + 0.0).to_bits()));
        }
        Ok(ColumnarValue::Array(ScalarValue::Utf8View(None).to_array_of_size(seeds.len())?))
    }
}
