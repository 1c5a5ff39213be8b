//! The slope of rising series: how much more there is of something for each one more of another.

use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::distribution::{CONFIDENCE, student_t_two_sided};

use super::robust::mean_and_variance;

/// A point of a series: how many there are, and what was read there.
pub type Point = (f64, f64);

/// Sums of squares and products about the means of a series.
#[derive(Clone, Copy, Default)]
struct Sums {
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    fn of(points: &[Point]) -> Sums {
        let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        points.iter().fold(Sums::default(), |sums, point| {
            let (x, y) = (point.0 - x, point.1 - y);
            Sums { xx: sums.xx + x * x, xy: sums.xy + x * y, yy: sums.yy + y * y }
        })
    }
}

/// The slope of one series by least squares; not a number without two different places.
pub fn of_series(points: &[Point]) -> f64 {
    let sums = Sums::of(points);
    sums.xy / sums.xx
}

/// The slope that all series share, each of which begins where it likes. `None`: fewer than three points in all series.
///
/// The interval is the wider one of two: of least squares with the deviations from the lines, and of what the slopes of
/// the series differ by (Student's t, Draper and Smith, Applied Regression Analysis, 1998, section 1.4). The first one
/// alone would take steps in the rise of all series for chance; the second one alone needs many series.
pub fn shared(series: &[Vec<Point>]) -> Option<Estimate> {
    let series: Vec<&Vec<Point>> = series.iter().filter(|points| points.len() > 2).collect();
    let sums = series.iter().map(|points| Sums::of(points));
    let all = sums.fold(Sums::default(), |all, of| Sums { xx: all.xx + of.xx, xy: all.xy + of.xy, yy: all.yy + of.yy });
    let degrees = series.iter().map(|points| points.len() - 1).sum::<usize>().checked_sub(1)? as f64;
    let value = all.xy / all.xx;
    let around = ((all.yy - value * all.xy).max(0.0) / degrees / all.xx).sqrt();
    let by_lines = student_t_two_sided(CONFIDENCE, degrees) * around;
    let slopes: Vec<f64> = series.iter().map(|points| of_series(points)).collect();
    let count = slopes.len() as f64;
    let by_series = match slopes.len() {
        1 => 0.0,
        _ => student_t_two_sided(CONFIDENCE, count - 1.0) * (mean_and_variance(&slopes).1 / count).sqrt(),
    };
    let half = by_lines.max(by_series);
    Some(Estimate { value, low: value - half, high: value + half })
}

#[cfg(test)]
mod tests {
    use tlsdyno_base::random::SplitMix64;

    use super::*;

    /// Anscombe, Graphs in Statistical Analysis, The American Statistician 27(1), 1973, first set: slope 0.5, standard
    /// error 0.118. The digits and the interval were computed from his numbers with Python.
    #[test]
    fn it_agrees_with_published_numbers() {
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let points: Vec<Point> = x.into_iter().zip(y).collect();
        let found = shared(std::slice::from_ref(&points)).unwrap();
        let wanted = [0.500_090_909, 0.233_370_136, 0.766_811_682];
        for (found, wanted) in [found.value, found.low, found.high].into_iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
        assert_eq!(of_series(&points), found.value);
        assert_eq!(shared(&[points[..2].to_vec()]), None);
        assert_eq!(shared(&[]), None);
    }

    /// Of series that differ in their slopes, and of points that lie beside the lines.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut random = SplitMix64::new(1);
        for [of_slopes, of_points] in [[0.0, 300.0], [2.0, 0.0], [2.0, 300.0]] {
            let mut held = 0;
            for _ in 0..1000 {
                let mut one = |start: f64| -> Vec<Point> {
                    let slope = 10.0 + of_slopes * random.normal();
                    let y = |x: f64, noise: f64| (x, start + slope * x + of_points * noise);
                    (1..=8).map(|step| y(f64::from(100 * step), random.normal())).collect()
                };
                let found = shared(&[one(0.0), one(5e3), one(-1e3)]).unwrap();
                held += u32::from((found.low..=found.high).contains(&10.0));
            }
            assert!(held >= 930, "{held} of 1000 with {of_slopes} and {of_points}");
        }
    }
}
