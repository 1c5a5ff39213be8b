//! Dates as HTTP writes them (RFC 9110 section 5.6.7), without allocation.

/// `Sun, 06 Nov 1994 08:49:37 GMT`
pub type HttpDate = [u8; 29];

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The date of this many seconds since 1970, up to the year 9999; earlier and later ones are moved to the nearest that
/// can be written.
pub fn http_date(unix_s: i64) -> HttpDate {
    let unix_s = unix_s.clamp(0, 253_402_300_799) as u64;
    let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    let mut date = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    date[0..3].copy_from_slice(DAYS[(days % 7) as usize]);
    two_digits(&mut date[5..7], day);
    date[8..11].copy_from_slice(MONTHS[month as usize - 1]);
    two_digits(&mut date[12..14], year / 100);
    two_digits(&mut date[14..16], year % 100);
    two_digits(&mut date[17..19], seconds / 3600);
    two_digits(&mut date[20..22], seconds / 60 % 60);
    two_digits(&mut date[23..25], seconds % 60);
    date
}

fn two_digits(out: &mut [u8], value: u64) {
    out[0] = b'0' + (value / 10) as u8;
    out[1] = b'0' + (value % 10) as u8;
}

/// Year, month and day of a day number since 1970, by counting in years that begin in March, so that leap days come
/// last.
fn civil(days: u64) -> (u64, u64, u64) {
    // 1970-01-01 is day 719,468 since 0000-03-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates_are_written() {
        for (unix_s, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            // The example of RFC 9110.
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_000_000_000, "Sun, 09 Sep 2001 01:46:40 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&http_date(unix_s)).unwrap(), text);
        }
    }
}
