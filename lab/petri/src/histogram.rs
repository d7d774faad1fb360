//! Histogram of nanoseconds: quantiles to 1.6 %.
//!
//! Knows nothing of: what was measured.

/// Sub-buckets of each power of two.
const FINE: u64 = 64;

/// Counts of times in buckets that grow with the time.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: f64,
}

impl Histogram {
    /// Adds a time in nanoseconds.
    pub fn add(&mut self, nanos: u64) {
        let bucket = bucket(nanos);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.sum += nanos as f64;
    }

    /// How many were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Mean in microseconds, exact; 0 if nothing was added.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum / self.total as f64 / 1e3 }
    }

    /// The time in microseconds that this share (0 to 1) of all do not exceed; 0 if nothing was added.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if wanted <= seen {
                return upper(bucket) as f64 / 1e3;
            }
        }
        0.0
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < FINE {
        return nanos as usize;
    }
    let power = u64::from(63 - nanos.leading_zeros()) - u64::from(FINE.trailing_zeros());
    (power * FINE + (nanos >> power)) as usize
}

/// The greatest time of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < FINE {
        return bucket;
    }
    let power = bucket / FINE - 1;
    let fine = bucket - power * FINE;
    ((fine + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_its_bucket_and_quantiles_are_close() {
        for nanos in (0..70).chain([127, 128, 1000, 123_456, 987_654_321]) {
            let (low, high) = (upper(bucket(nanos).saturating_sub(1)), upper(bucket(nanos)));
            assert!(nanos <= high && (low < nanos || nanos == 0), "{nanos}: {low}..={high}");
        }
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.add(micros * 1000));
        assert!((histogram.quantile_us(0.5) / 500.0 - 1.0).abs() < 0.016);
        assert!((histogram.quantile_us(0.99) / 990.0 - 1.0).abs() < 0.016);
        assert_eq!((histogram.count(), histogram.mean_us()), (1000, 500.5));
        assert_eq!(Histogram::default().quantile_us(0.5), 0.0);
    }
}
