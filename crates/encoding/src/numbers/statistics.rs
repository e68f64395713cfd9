//! Statistics of the numbers of a chunk, for the choice of an encoding and for estimates of its size.

use crate::kernels::{Native, with_wide_vectors};
use crate::packed;

/// Numbers of a chunk, with their statistics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statistics<'v, N> {
    pub(crate) values: &'v [N],
    /// Bytes of a plain number.
    pub(crate) plain_bytes: usize,
    pub(crate) min: N,
    pub(crate) max: N,
    /// Number of runs of equal numbers.
    pub(crate) runs: usize,
}

impl<'v, N: Native> Statistics<'v, N> {
    /// Collects the statistics of `values`, which must not be empty.
    pub(crate) fn collect(values: &'v [N], plain_bytes: usize) -> Self {
        let first = values.first().copied().unwrap_or_default();
        with_wide_vectors(move || {
            let (mut min, mut max, mut runs) = (first, first, 1);
            for value in values {
                min = min.min(*value);
                max = max.max(*value);
            }
            // Neighbours that differ are counted in parts of 128 pairs, so that each count fits a byte.
            for part in 0..values.len().div_ceil(128) {
                let left = &values[part * 128..values.len().min(part * 128 + 128)];
                let right = &values[part * 128 + 1..values.len().min(part * 128 + 129)];
                runs += left.iter().zip(right).map(|(left, right)| u8::from(left != right)).sum::<u8>() as usize;
            }
            Self { values, plain_bytes, min, max, runs }
        })
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.values.len()
    }

    /// Bits of a plain number.
    pub(crate) fn plain_bits(&self) -> usize {
        8 * self.plain_bytes
    }

    /// `max - min`. Returns `None` if it overflows 128 bits.
    pub(crate) fn spread(&self) -> Option<i128> {
        self.max.to_number().checked_sub(self.min.to_number())
    }

    /// Number of bits of `max - min`. Returns `None` if it is more than 64.
    pub(crate) fn width(&self) -> Option<usize> {
        packed::width_of(self.min, self.max)
    }

    /// Number of bits of `max`. Returns `None` if it is more than 64, or if a number is negative.
    pub(crate) fn width_from_zero(&self) -> Option<usize> {
        packed::width_of(N::from_number(0), self.max).filter(|_| self.min.to_number() >= 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted() {
        for rows in [1, 2, 127, 128, 129, 130, 1000] {
            for length in [1, 2, 3, 64, 128, 500] {
                let values: Vec<i32> = (0..rows).map(|row| row / length).collect();
                let statistics = Statistics::collect(&values, 4);
                assert_eq!(statistics.runs, (rows as usize).div_ceil(length as usize), "{rows} rows, runs of {length}");
                assert_eq!((statistics.min, statistics.max), (0, (rows - 1) / length));
            }
        }
    }
}
