//! Reads the record batches of a segment with the crate kafka-protocol.
//!
//!     decode FILE
//!
//! For every line on standard input it makes one pass over FILE, in memory. It prints the number of records, the
//! bytes of keys and of values, the largest offset, and the nanoseconds of the pass. The crate always verifies
//! checksums.

use std::error::Error;
use std::io::BufRead;
use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::records::RecordBatchDecoder;

struct Totals {
    records: i64,
    key_bytes: i64,
    value_bytes: i64,
    last_offset: i64,
    timestamps: i64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the path of a segment")?;
    let data = Bytes::from(std::fs::read(path)?);
    let mut timestamps = 0i64; // printed at the end, so that the compiler cannot drop the reads
    for line in std::io::stdin().lock().lines() {
        line?;
        let start = Instant::now();
        let sums = read_all(data.clone())?;
        let spent = start.elapsed().as_nanos();
        println!(
            "{} {} {} {} {}",
            sums.records, sums.key_bytes, sums.value_bytes, sums.last_offset, spent
        );
        timestamps = timestamps.wrapping_add(sums.timestamps);
    }
    eprintln!("{timestamps}");
    Ok(())
}

/// Read every record of all batches.
fn read_all(mut data: Bytes) -> Result<Totals, Box<dyn Error>> {
    let mut sums = Totals { records: 0, key_bytes: 0, value_bytes: 0, last_offset: -1, timestamps: 0 };
    while !data.is_empty() {
        let batch = RecordBatchDecoder::decode(&mut data)?;
        for record in &batch.records {
            sums.records += 1;
            sums.key_bytes += record.key.as_ref().map_or(0, |key| key.len() as i64);
            sums.value_bytes += record.value.as_ref().map_or(0, |value| value.len() as i64);
            sums.last_offset = sums.last_offset.max(record.offset);
            sums.timestamps = sums.timestamps.wrapping_add(record.timestamp);
        }
    }
    Ok(sums)
}
