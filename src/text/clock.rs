//! The date for chat templates that print today's date: `strftime` on UTC.
//!
//! Python's `strftime_now` uses the local time zone; the standard library of Rust does not know
//! it, so the date may differ by one around midnight.

/// English names, as Python's default locale has them.
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Day 0 of the Unix era was a Thursday, so the list starts there.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

const DAY: u64 = 86_400;

/// A moment taken apart.
struct Moment {
    year: u64,
    /// 0 = January.
    month: usize,
    /// 1..=31.
    day: u64,
    /// 1..=366.
    day_of_year: u64,
    weekday: &'static str,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Moment {
    fn from_unix(seconds: u64) -> Self {
        let days = seconds / DAY;
        let time = seconds % DAY;
        let (year, day_in_year) = year_of(days);
        let mut month = 0;
        let mut day = day_in_year;
        while day >= month_length(year, month) {
            day -= month_length(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: day + 1,
            day_of_year: day_in_year + 1,
            weekday: WEEKDAYS[(days % 7) as usize],
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
        }
    }

    /// Replacement of one directive letter, or `None` if it is not supported.
    fn directive(&self, letter: char) -> Option<String> {
        let month = MONTHS[self.month];
        let hour12 = (self.hour + 11) % 12 + 1;
        Some(match letter {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month + 1),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'A' => self.weekday.to_owned(),
            'a' => self.weekday[..3].to_owned(),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{hour12:02}"),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month + 1, self.day),
            'T' => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn month_length(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Year of a day counted from 1970-01-01, and the day's index in it.
fn year_of(days: u64) -> (u64, u64) {
    // The Gregorian calendar repeats after 400 years, so the loop below stays short.
    const FOUR_CENTURIES: u64 = 146_097;
    let mut year = 1970 + days / FOUR_CENTURIES * 400;
    let mut day = days % FOUR_CENTURIES;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if day < length {
            return (year, day);
        }
        day -= length;
        year += 1;
    }
}

/// `format` with its `%` directives replaced, for a time in seconds since 1970 (UTC).
/// `%-d` and the like leave out the padding, as on Linux.
///
/// # Errors
/// A message that names the first directive that is not supported.
pub fn strftime(format: &str, seconds: u64) -> Result<String, String> {
    let moment = Moment::from_unix(seconds);
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut letter = rest.next();
        let bare = letter == Some('-');
        if bare {
            letter = rest.next();
        }
        match letter.and_then(|l| moment.directive(l)) {
            Some(text) if bare => out += unpadded(&text),
            Some(text) => out += &text,
            None => {
                let shown = letter.map_or_else(String::new, String::from);
                return Err(format!("strftime_now does not know %{shown}"));
            }
        }
    }
    Ok(out)
}

/// Without leading zeros and spaces, but never empty.
fn unpadded(text: &str) -> &str {
    let trimmed = text.trim_start_matches(['0', ' ']);
    if trimmed.is_empty() { &text[text.len() - 1..] } else { trimmed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        let all = "%Y-%m-%d %H:%M:%S %A %j";
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 Thursday 001"),
            (951_782_400, "2000-02-29 00:00:00 Tuesday 060"),
            (1_704_067_199, "2023-12-31 23:59:59 Sunday 365"),
            (1_735_603_200, "2024-12-31 00:00:00 Tuesday 366"),
            (4_107_542_400, "2100-03-01 00:00:00 Monday 060"),
        ] {
            assert_eq!(strftime(all, seconds).unwrap(), text);
        }
    }

    #[test]
    fn directives() {
        // 2026-03-05 13:04:09, a Thursday.
        let at = 1_772_715_849;
        for (format, text) in [
            ("%d %b %Y", "05 Mar 2026"),
            ("%B %-d, %Y", "March 5, 2026"),
            ("%e|%a|%y|%p|%I|%-I", " 5|Thu|26|PM|01|1"),
            ("%F %T %Z%z 100%%", "2026-03-05 13:04:09 UTC+0000 100%"),
        ] {
            assert_eq!(strftime(format, at).unwrap(), text);
        }
        assert_eq!(strftime("%I %-H %-M", 0).unwrap(), "12 0 0");
    }

    #[test]
    fn unknown_directives_are_named() {
        assert!(strftime("%Q", 0).unwrap_err().contains("%Q"));
        assert!(strftime("100%", 0).is_err());
        assert!(strftime("%-", 0).is_err());
    }
}
