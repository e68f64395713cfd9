//! Native integers: the forms in which numbers are stored plain and decoded.

use arrow_buffer::ArrowNativeType;

use crate::kernels::Compress;

/// A native integer that holds the numbers of a type, or the low bits of any number.
pub(crate) trait Native: ArrowNativeType + Ord + Compress {
    /// Least number.
    const MIN: Self;
    /// Greatest number.
    const MAX: Self;
    /// The low bits of a number.
    fn from_number(number: i128) -> Self;
    /// The number.
    fn to_number(self) -> i128;
    /// `self + distance`, modulo the native integer.
    fn plus(self, distance: u64) -> Self;
    /// `self + other`, modulo the native integer.
    fn sum(self, other: Self) -> Self;
    /// The low bits of `self - base`.
    fn minus(self, base: Self) -> u64;
    /// From the bits of a floating-point number to its key, and back.
    fn flipped(self) -> Self;
}

macro_rules! native {
    ($native:ty) => {
        impl Native for $native {
            const MIN: Self = <$native>::MIN;
            const MAX: Self = <$native>::MAX;
            #[inline(always)]
            fn from_number(number: i128) -> Self {
                number as Self
            }
            #[inline(always)]
            fn to_number(self) -> i128 {
                i128::from(self)
            }
            #[inline(always)]
            fn plus(self, distance: u64) -> Self {
                self.wrapping_add(distance as Self)
            }
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, base: Self) -> u64 {
                self.wrapping_sub(base) as u64
            }
            #[inline(always)]
            fn flipped(self) -> Self {
                self ^ ((self >> (Self::BITS - 1)) & <$native>::MAX)
            }
        }
    };
}
native!(u8);
native!(i16);
native!(i32);
native!(i64);
native!(i128);

/// Runs an expression with `$native` standing for the integer of `$bytes` bytes: 1 is unsigned, for booleans, the
/// others are signed.
macro_rules! with_native {
    ($bytes:expr, $native:ident => $body:expr) => {
        match $bytes {
            1 => {
                type $native = u8;
                $body
            }
            2 => {
                type $native = i16;
                $body
            }
            4 => {
                type $native = i32;
                $body
            }
            8 => {
                type $native = i64;
                $body
            }
            _ => {
                type $native = i128;
                $body
            }
        }
    };
}
pub(crate) use with_native;

/// Runs an expression with `$lane` standing for the narrowest lane of at least `$width` bits.
macro_rules! with_lane {
    ($width:expr, $lane:ident => $body:expr) => {
        match $width {
            0..=8 => {
                type $lane = u8;
                $body
            }
            9..=16 => {
                type $lane = u16;
                $body
            }
            17..=32 => {
                type $lane = u32;
                $body
            }
            _ => {
                type $lane = u64;
                $body
            }
        }
    };
}
pub(crate) use with_lane;
