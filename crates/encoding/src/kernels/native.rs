//! Native integers: the types in which plain numbers are stored, and to which all numbers are decoded.

use arrow_buffer::ArrowNativeType;

use crate::kernels::Compress;

/// Native integer that holds the numbers of a type. Wider numbers are truncated to their low bits.
pub(crate) trait Native: ArrowNativeType + Ord + Compress {
    /// Least value.
    const MIN: Self;
    /// Greatest value.
    const MAX: Self;
    /// Low bits of a number.
    fn from_number(number: i128) -> Self;
    /// The value as a number.
    fn to_number(self) -> i128;
    /// `self + distance`, modulo the range of the integer.
    fn plus(self, distance: u64) -> Self;
    /// `self + other`, modulo the range of the integer.
    fn wrapping_sum(self, other: Self) -> Self;
    /// Low bits of `self - base`.
    fn minus(self, base: Self) -> u64;
    /// Maps the bits of a floating-point number to an integer that orders like it, and back. The mapping is its own
    /// inverse.
    fn flip_float_order(self) -> Self;
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
            fn wrapping_sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, base: Self) -> u64 {
                self.wrapping_sub(base) as u64
            }
            #[inline(always)]
            fn flip_float_order(self) -> Self {
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

/// Runs an expression with `$native` as the integer type of `$bytes` bytes. The type of 1 byte is unsigned, for
/// booleans; the others are signed.
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

/// Runs an expression with `$lane` as the narrowest lane type of at least `$width` bits.
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
