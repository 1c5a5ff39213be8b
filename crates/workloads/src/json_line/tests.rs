use proptest::prelude::*;

use super::super::access_log::{LineFault, parse};
use super::super::kept_inputs::access_log_target::access_log_line;
use super::*;

#[test]
fn lines_of_several_programs_are_read_by_their_names() {
    let lines: Vec<&str> = include_str!("lines.txt").lines().filter(|line| !line.starts_with('#')).collect();
    for pair in lines.chunks(2) {
        let written = as_combined(pair[0].as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(written.as_deref().map(str::trim_end), Some(pair[1]), "{}", pair[0]);
        assert_eq!(parse(pair[1].as_bytes()).unwrap().time_s, 1_664_858_220);
    }
}

#[test]
fn other_lines_are_left_as_they_are() {
    let others = [
        "",
        "{",
        "{}",
        "[1]",
        "1.2.3.4 - - [04/Oct/2022:04:37:00 +0000] \"GET /{a} HTTP/1.1\" 200 5",
        "{\"level\":\"info\",\"ts\":1664858220.5,\"msg\":\"autosaved config\"}",
        "{\"ts\":\"never\",\"uri\":\"/\",\"method\":\"GET\",\"status\":1}",
        "{\"ts\":\"2022-10-04T04:37:00+\u{20ac}a\",\"uri\":\"/\",\"method\":\"GET\",\"status\":1}",
        "{\"ts\":1e300,\"uri\":\"/\",\"method\":\"GET\",\"status\":1}",
        "{\"ip\":\"192.0.2.1\",\"ts\":1,\"status\":200}",
    ];
    for other in others {
        assert_eq!(as_combined(other.as_bytes()), None, "{other}");
    }
    assert_eq!(parse(others[5].as_bytes()), Err(LineFault::Json));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A damaged line is an entry or a fault, as the fuzz target wants it.
    #[test]
    fn damaged_lines_are_entries_or_faults(
        which in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..4),
    ) {
        let lines: Vec<&str> = include_str!("lines.txt").lines().filter(|line| line.ends_with('}')).collect();
        let mut line = which.get(&lines).as_bytes().to_vec();
        for (at, byte, how) in damage {
            let at = at.index(line.len());
            match how {
                0 => line[at] = byte,
                1 => line.insert(at, byte),
                _ => drop(line.remove(at)),
            }
        }
        access_log_line(&line);
    }
}
