//! What the fuzz target of the histograms of an hour runs; in `probe/src/command/` the tests do it with the inputs
//! that are kept.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::buckets::{Bucket, read, v2_bytes};

/// A column of a database, the first byte saying whether the rest is deflated still: what is read are buckets in order,
/// and the same when they are written and read again.
pub fn histograms(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let column = if choice & 1 == 0 { bytes.to_vec() } else { deflated(bytes) };
    let Ok(all) = read(&column) else { return };
    let mut written = Vec::new();
    for (number, counts) in &all {
        let bytes = v2_bytes(counts, u64::MAX);
        written.push(*number);
        written.extend((bytes.len() as u32).to_be_bytes());
        written.extend(bytes);
    }
    assert_eq!(read(&deflated(&written)).as_ref(), Ok(&all));
    for (_, counts) in all {
        assert!(counts.is_sorted_by(|one, next| one.0 < next.0), "{counts:?}");
        for (bucket, count) in counts {
            assert!(count > 0 && [bucket.lowest(), bucket.middle()].map(Bucket::of) == [bucket; 2], "{bucket:?}");
        }
    }
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}
