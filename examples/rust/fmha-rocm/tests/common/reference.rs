// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention in f64, and how far a kernel's roundings may take it from that.
use super::Problem;
use fmha_rocm::DType;

/// Half the distance between f32 numbers, of 1.
const E: f64 = 1.0 / (1u64 << 24) as f64;

/// A row of scores: value, error that f32 arithmetic may give it, and the row of k and v.
struct Score {
    value: f64,
    error: f64,
    key: usize,
}

/// Rows of one head of one sequence, and where its numbers are.
struct Head<'a> {
    problem: &'a Problem,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    rows: usize,
    keys: usize,
    slope: f64,
    flushes: bool,
}

/// The largest error of o, (total, heads, dim), and lse, (heads, total), in units of what roundings allow.
pub fn worst_error(problem: &Problem, arch: &str, [q, k, v]: [&[f32]; 3], o: &[f32], lse: &[f32]) -> f64 {
    let (dim, total) = (problem.dim, problem.totals().0);
    let (stride_q, stride_k) = (problem.heads * dim, problem.key_heads * dim);
    let (mut first_q, mut first_k, mut worst) = (0, 0, 0.0);
    for &(rows, keys) in &problem.lengths {
        for h in 0..problem.heads {
            let key_column = h / (problem.heads / problem.key_heads) * dim;
            let head = Head {
                problem,
                q: &q[(first_q * stride_q + h * dim).min(q.len())..],
                k: &k[(first_k * stride_k + key_column).min(k.len())..],
                v: &v[(first_k * stride_k + key_column).min(v.len())..],
                rows,
                keys,
                flushes: arch == "gfx90a",
                slope: problem.slopes.as_ref().map_or(0.0, |slopes| slopes[h].into()),
            };
            for i in 0..rows {
                let at = (first_q + i) * stride_q + h * dim;
                let error = head.row_error(i, &o[at..at + dim], lse[h * total + first_q + i].into());
                worst = if error <= worst { worst } else { error }; // NaN is not <= anything
            }
        }
        first_q += rows;
        first_k += keys;
    }
    worst
}

impl Head<'_> {
    fn row_error(&self, i: usize, o: &[f32], lse: f64) -> f64 {
        let scores: Vec<Score> =
            (0..self.keys).filter(|j| self.sees(i, *j)).map(|j| self.score(i, j)).collect();
        if scores.is_empty() {
            let nothing = lse == f64::NEG_INFINITY && o.iter().all(|x| *x == 0.0);
            return if nothing { 0.0 } else { f64::INFINITY };
        }
        let largest = scores.iter().map(|score| score.value).fold(f64::NEG_INFINITY, f64::max);
        let exps: Vec<f64> = scores.iter().map(|score| (score.value - largest).exp()).collect();
        let sum: f64 = exps.iter().sum();
        // The maximum is rounded with each tile of 32 keys or more, and what was summed before is rescaled.
        let of_maximum = E * (self.keys as f64 / 32.0 + 4.0) * (largest.abs() + 4.0);
        let errors: Vec<f64> = scores.iter().map(|score| score.error + of_maximum).collect();
        let of_sum =
            errors.iter().zip(&exps).map(|(e, p)| e * p / sum).sum::<f64>() + E * (self.keys as f64 + 8.0);

        let exact = sum.ln() + largest;
        let allowed = of_sum + E * (4.0 * largest.abs() + 2.0 * sum.ln().abs() + 3.0);
        let mut worst = (lse - exact).abs() / allowed;
        for (d, got) in o.iter().enumerate() {
            let error = self.output_error(d, f64::from(*got), &scores, &exps, &errors, of_sum);
            worst = if error <= worst { worst } else { error };
        }
        worst
    }

    /// The error of element d of the row, in units of what its roundings allow.
    fn output_error(
        &self,
        d: usize,
        got: f64,
        scores: &[Score],
        exps: &[f64],
        errors: &[f64],
        of_sum: f64,
    ) -> f64 {
        // P, at most 1, is rounded to the inputs' type: bf16 to nearest, f16 by some kernels toward zero; and gfx90a
        // takes f16 below the normal numbers for 0. o is rounded to nearest.
        let (of_p, of_o, lost_p, smallest) = match self.problem.dtype {
            DType::F16 if self.flushes => (2f64.powi(-10), 2f64.powi(-11), 2f64.powi(-14), 2f64.powi(-24)),
            DType::F16 => (2f64.powi(-10), 2f64.powi(-11), 2f64.powi(-24), 2f64.powi(-24)),
            _ => (2f64.powi(-8), 2f64.powi(-8), 0.0, 0.0),
        };
        let (sum, stride) = (exps.iter().sum::<f64>(), self.problem.key_heads * self.problem.dim);
        let (mut exact, mut allowed) = (0.0, 0.0);
        for ((score, exp), error) in scores.iter().zip(exps).zip(errors) {
            let v = f64::from(self.v[score.key * stride + d]);
            let w = exp / sum;
            exact += w * v;
            allowed += v.abs() * (w * (of_p + error + E * (self.keys as f64 + 8.0)) + lost_p / sum);
        }
        (got - exact).abs() / (allowed + exact.abs() * (of_o + of_sum) + smallest / 2.0)
    }

    /// The query's own column: the last query's is the last key.
    fn distance(&self, i: usize, j: usize) -> i64 {
        j as i64 - (i as i64 + self.keys as i64 - self.rows as i64)
    }

    fn sees(&self, i: usize, j: usize) -> bool {
        let (left, right) = self.problem.window;
        let within = |side: Option<usize>, keys: i64| match side {
            Some(limit) => limit >= self.problem.longest().1 || keys <= limit as i64,
            None => true,
        };
        let distance = self.distance(i, j);
        within(left, -distance) && within(right, distance)
    }

    fn score(&self, i: usize, j: usize) -> Score {
        let Problem { dim, heads, key_heads, scale, .. } = *self.problem;
        let (q, k) = (&self.q[i * heads * dim..][..dim], &self.k[j * key_heads * dim..][..dim]);
        let products = q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b));
        let (product, squares) = products.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        let scale = f64::from(scale);
        let mut value = scale * product;
        // A chain of dim roundings of sums that walk to the product: six standard deviations.
        let chain = 6.0 * scale * (dim as f64 / 3.0 * (squares / 2.0 + product * product / 3.0)).sqrt();
        let softcap = f64::from(self.problem.softcap);
        let added = -self.slope * self.distance(i, j).abs() as f64;
        let error = E * (chain + 5.0 * (value.abs() + added.abs()) + 2.0 + 10.0 * softcap);
        if softcap > 0.0 {
            value = softcap * (value / softcap).tanh();
        }
        Score { value: value + added, error, key: j }
    }
}
