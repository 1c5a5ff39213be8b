//! Least squares by normal equations.

/// Keeps what always goes together from having no solution.
const RIDGE: f64 = 1e-9;

/// The coefficients, from the sums of the products of all pairs of terms, and of each term and what is wanted. By
/// Cholesky's decomposition of the equations scaled to a diagonal of 1. A term that never occurred has 0. `None`: they
/// have no solution.
pub fn solved(products: &[Vec<f64>], with_wanted: &[f64]) -> Option<Vec<f64>> {
    let used: Vec<usize> = (0..with_wanted.len()).filter(|at| products[*at][*at] > 0.0).collect();
    let scale: Vec<f64> = used.iter().map(|at| products[*at][*at].sqrt()).collect();
    let n = used.len();
    let mut lower = vec![vec![0.0; n]; n];
    for row in 0..n {
        for column in 0..=row {
            let ridge = if row == column { RIDGE } else { 0.0 };
            let product = products[used[row]][used[column]] / (scale[row] * scale[column]) + ridge;
            let rest = product - (0..column).map(|k| lower[row][k] * lower[column][k]).sum::<f64>();
            if row == column {
                if rest <= 0.0 {
                    return None;
                }
                lower[row][row] = rest.sqrt();
            } else {
                lower[row][column] = rest / lower[column][column];
            }
        }
    }
    let mut solution = vec![0.0; n];
    for row in 0..n {
        let known: f64 = (0..row).map(|k| lower[row][k] * solution[k]).sum();
        solution[row] = (with_wanted[used[row]] / scale[row] - known) / lower[row][row];
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|k| lower[k][row] * solution[k]).sum();
        solution[row] = (solution[row] - known) / lower[row][row];
    }
    let mut coefficients = vec![0.0; with_wanted.len()];
    for (at, (value, scale)) in used.iter().zip(solution.iter().zip(&scale)) {
        coefficients[*at] = value / scale;
    }
    Some(coefficients)
}

/// The coefficients for which the rows come nearest to what is wanted of each. `None`: there are no rows.
pub fn of_rows(rows: &[(Vec<f64>, f64)]) -> Option<Vec<f64>> {
    let terms = rows.first()?.0.len();
    let mut products = vec![vec![0.0; terms]; terms];
    let mut with_wanted = vec![0.0; terms];
    for (row, wanted) in rows {
        for (at, one) in row.iter().enumerate() {
            products[at].iter_mut().zip(row).for_each(|(sum, two)| *sum += one * two);
            with_wanted[at] += one * wanted;
        }
    }
    solved(&products, &with_wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exact_is_found_and_what_never_occurred_has_nothing() {
        let rows = [[1.0, 2.0, 0.0], [3.0, 1.0, 0.0], [1.0, 1.0, 0.0]];
        let rows = rows.map(|row| (row.to_vec(), 2.0 * row[0] - 5.0 * row[1]));
        let found = of_rows(&rows).unwrap();
        assert!((found[0] - 2.0).abs() < 1e-6 && (found[1] + 5.0).abs() < 1e-6 && found[2] == 0.0, "{found:?}");
        assert_eq!(of_rows(&[]), None);
    }
}
