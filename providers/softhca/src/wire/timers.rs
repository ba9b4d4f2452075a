//! Times encoded in five bits: RNR NAK timer and local acknowledge timeout.

use std::time::Duration;

/// RNR NAK timer codes in units of 10 µs (IBTA vol 1, 9.7.5.2.8, table "Encoding for RNR NAK timer
/// field"; `enum ib_rnr_timeout` in the kernel's include/rdma/ib_verbs.h has the same values).
const RNR_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, // 0..8; code 0 is the longest, not the shortest
    16, 24, 32, 48, 64, 96, 128, 192, // 8..16
    256, 384, 512, 768, 1024, 1536, 2048, 3072, // 16..24
    4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, // 24..32
];

/// Wait of a requester after an RNR NAK with this code. Only the low 5 bits count.
pub(crate) const fn rnr_delay(code: u8) -> Duration {
    Duration::from_micros(RNR_10US[(code & 0x1f) as usize] as u64 * 10)
}

/// Acknowledge timeout of a code: 4.096 µs · 2^code (IBTA vol 1, 9.7.6.1.3). `None` for 0: no
/// timeout. Only the low 5 bits count.
pub(crate) const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 0x1f {
        0 => None,
        // At most 4096 << 31 ns, 2.4 hours.
        code => Some(Duration::from_nanos(4096 << code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_delays_as_printed() {
        // In milliseconds, as the table has them.
        let printed = [
            655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96,
            1.28, 1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92,
            122.88, 163.84, 245.76, 327.68, 491.52,
        ];
        for (code, ms) in (0u8..).zip(printed) {
            assert_eq!(rnr_delay(code), Duration::from_secs_f64(ms / 1000.0), "code {code}");
            assert_eq!(rnr_delay(code | 0xe0), rnr_delay(code));
        }
    }

    #[test]
    fn ack_timeouts() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8192)));
        // The well-known 14: about 67 ms.
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(8_796_093_022_208)));
    }
}
