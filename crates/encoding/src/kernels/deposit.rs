//! Spreads consecutive bits over the set positions of a word.

#[cfg(target_arch = "x86_64")]
use crate::kernels::InstructionSet;

/// Deposits the low bits of `bits`, in order, at the set bits of `mask`, from the lowest on. All other bits are zero.
#[inline]
pub(crate) fn deposit(bits: u64, mask: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if InstructionSet::current() == InstructionSet::Avx512 {
        // SAFETY: the machine has the instructions of the current set, and BMI2 belongs to that set. BMI2 is not used
        // on other machines, because some execute it slowly.
        return unsafe { deposit_with_bmi2(bits, mask) };
    }
    deposit_one_by_one(bits, mask)
}

#[inline]
fn deposit_one_by_one(mut bits: u64, mut mask: u64) -> u64 {
    let mut deposited = 0;
    while mask != 0 {
        deposited |= (bits & 1) << mask.trailing_zeros();
        bits >>= 1;
        mask &= mask - 1;
    }
    deposited
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "bmi2")]
fn deposit_with_bmi2(bits: u64, mask: u64) -> u64 {
    std::arch::x86_64::_pdep_u64(bits, mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::InstructionSet;
    use taut_testkit::Random;

    #[test]
    fn set_bits_of_the_mask_take_bits_in_order() {
        let mut random = Random(9);
        let mut next = || random.number();
        let mut cases = vec![(u64::MAX, 0), (5, u64::MAX), (0b1101, 0b1010_0011)];
        cases.extend((0..200).map(|_| (next(), next() & next())));
        assert_eq!(deposit_one_by_one(0b1101, 0b1010_0011), 0b1010_0001);
        InstructionSet::for_each_available(|set| {
            for (bits, mask) in &cases {
                assert_eq!(deposit(*bits, *mask), deposit_one_by_one(*bits, *mask), "{set:?}, {bits:x} {mask:x}");
            }
        });
    }
}
