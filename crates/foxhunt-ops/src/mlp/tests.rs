use foxhunt_core::{Head, ReturnModel};

use super::cpu::values_from_head as row_q;
use super::*;

fn shape(hidden: &[usize], head: Head, dueling: bool) -> MlpShape {
    MlpShape { state_dim: 7, hidden: hidden.to_vec(), head: head.into(), dueling, returns: ReturnModel::Mean }
}

fn values(n: usize, salt: usize) -> Vec<f32> {
    (0..n).map(|i| (((i * 7919 + salt * 104_729) % 2001) as f32 / 1000.0) - 1.0).collect()
}

fn q_values(layout: &MlpLayout, w: &[f32], x: &[f32]) -> Vec<f32> {
    let mut q = vec![0.0; x.len() / layout.shape().state_dim * layout.n_outputs()];
    let mut weights = PackedWeights::new(layout, false);
    weights.pack(layout, w);
    Forward::default().q_values(layout, w, &weights, x, &mut q);
    q
}

fn q_from_head(layout: &MlpLayout, head: &[f32], q: &mut [f32]) {
    for (head, q) in head.chunks_exact(layout.head().n_out).zip(q.chunks_exact_mut(layout.n_outputs())) {
        row_q(layout, head, q);
    }
}

/// The network in f64, one row, straight from the module's formulas.
fn reference(layout: &MlpLayout, w: &[f64], x: &[f64]) -> Vec<f64> {
    let mut h = x.to_vec();
    let layers = layout.layers();
    for (l, layer) in layers.iter().enumerate() {
        let mut out = vec![0.0; layer.n_out];
        for (o, value) in out.iter_mut().enumerate() {
            *value = w[layer.bias + o];
            for (i, x) in h.iter().enumerate() {
                *value += w[layer.weight + o * layer.n_in + i] * x;
            }
            if l + 1 < layers.len() {
                *value = value.max(0.0);
            }
        }
        h = out;
    }
    if !layout.shape().dueling {
        return h;
    }
    let mut q = Vec::new();
    let mut start = 1;
    for &len in layout.shape().head.branches() {
        let branch = &h[start..start + len];
        let mean = branch.iter().sum::<f64>() / len as f64;
        q.extend(branch.iter().map(|a| h[0] + a - mean));
        start += len;
    }
    q
}

#[test]
fn the_table_has_no_holes_and_names_every_parameter() {
    let layout = MlpLayout::new(shape(&[5, 3], Head::Branching, true));
    let names: Vec<_> = layout.parameters().iter().map(|p| p.name.as_str()).collect();
    let want = [
        "layer0.weight",
        "layer0.bias",
        "layer1.weight",
        "layer1.bias",
        "value.weight",
        "advantage.weight",
        "value.bias",
        "advantage.bias",
    ];
    assert_eq!(names, want);
    let mut offset = 0;
    for parameter in layout.parameters() {
        assert_eq!(parameter.offset, offset);
        offset += parameter.len();
    }
    assert_eq!(offset, layout.len());
    assert_eq!(layout.len(), 5 * 7 + 5 + 3 * 5 + 3 + 12 * 3 + 12);
}

#[test]
fn initial_values_are_bounded_seeded_and_fill_their_range() {
    let layout = MlpLayout::new(shape(&[64, 32], Head::Factored, true));
    let values = layout.init(5);
    assert_eq!(values, layout.init(5));
    assert_ne!(values, layout.init(6));
    for parameter in layout.parameters() {
        let bound = 1.0 / (parameter.fan_in as f32).sqrt();
        let part = &values[parameter.range()];
        assert!(part.iter().all(|v| v.abs() <= bound), "{}", parameter.name);
        if part.len() > 100 {
            let top = part.iter().fold(0.0_f32, |top, v| top.max(v.abs()));
            assert!(top > 0.9 * bound, "{}: {top} of {bound}", parameter.name);
        }
    }
}

#[test]
fn forward_equals_the_formula_for_every_head_and_size() {
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for dueling in [false, true] {
            for hidden in [&[][..], &[1], &[33, 17], &[16, 8, 5]] {
                let layout = MlpLayout::new(shape(hidden, head, dueling));
                let w = layout.init(1);
                let w64: Vec<f64> = w.iter().map(|&v| f64::from(v)).collect();
                for rows in [1, 31, 32, 33, 127, 128, 129, 257] {
                    let x = values(rows * 7, rows);
                    let q = q_values(&layout, &w, &x);
                    for row in [0, rows / 2, rows - 1] {
                        let x64: Vec<f64> = x[row * 7..row * 7 + 7].iter().map(|&v| f64::from(v)).collect();
                        let want = reference(&layout, &w64, &x64);
                        for (a, want) in want.iter().enumerate() {
                            let got = f64::from(q[row * layout.n_outputs() + a]);
                            // Sums of up to 33 terms of size one, each rounded once.
                            assert!(
                                (got - want).abs() < 5e-6,
                                "{head:?} {dueling} {hidden:?} {rows}: {got} {want}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Case B24: the advantages of a row are centred by that row alone.
#[test]
fn dueling_centres_each_row_by_itself() {
    let layout = MlpLayout::new(shape(&[], Head::Exposure, true));
    let head = [
        0.0, 1.0, 2.0, 1.5, 1.5, 1.5, //
        0.0, -2.0, 3.0, 0.5, 0.5, 0.5, //
        10.0, 3.0, -4.0, -0.5, -0.5, -0.5,
    ];
    let mut q = [0.0; 15];
    q_from_head(&layout, &head, &mut q);
    assert_eq!(q, [-0.5, 0.5, 0.0, 0.0, 0.0, -2.5, 2.5, 0.0, 0.0, 0.0, 13.5, 6.5, 10.0, 10.0, 10.0]);
    let mut changed = head;
    changed[7..].fill(99.0);
    let mut other = [0.0; 15];
    q_from_head(&layout, &changed, &mut other);
    assert_eq!(q[..5], other[..5]);

    // Through the whole network: other rows of the batch change no bit of a row.
    let layout = MlpLayout::new(shape(&[33, 17], Head::Branching, true));
    let w = layout.init(3);
    let mut x = values(64 * 7, 1);
    let a = q_values(&layout, &w, &x);
    for (i, v) in x.iter_mut().enumerate() {
        if i / 7 != 20 {
            *v = -3.0 * *v + 1.0;
        }
    }
    let b = q_values(&layout, &w, &x);
    assert_eq!(a[20 * 11..21 * 11], b[20 * 11..21 * 11]);
    assert_ne!(a[..11], b[..11]);
}

/// A branch is centred by its own mean, and one value serves all branches.
#[test]
fn branches_share_the_value_and_have_their_own_mean() {
    let layout = MlpLayout::new(shape(&[], Head::Branching, true));
    let head = [10.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 30.0, -3.0, 0.0, 3.0];
    let mut q = [0.0; 11];
    q_from_head(&layout, &head, &mut q);
    assert_eq!(q, [8.0, 9.0, 10.0, 11.0, 12.0, 0.0, 10.0, 20.0, 7.0, 10.0, 13.0]);
}

/// Case C12: a NaN observation is not turned into a legal value by relu.
#[test]
fn relu_does_not_hide_a_nan() {
    for head in [Head::Exposure, Head::Branching] {
        let layout = MlpLayout::new(shape(&[16, 8], head, true));
        let w = layout.init(1);
        let mut x = values(7, 1);
        x[0] = f32::NAN;
        let q = q_values(&layout, &w, &x);
        assert!(q.iter().all(|v| v.is_nan()), "{q:?}");
    }
}

/// The hand-written backward against central differences of the f64 formula.
#[test]
fn gradients_equal_finite_differences() {
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for dueling in [false, true] {
            let layout = MlpLayout::new(shape(&[9, 6], head, dueling));
            let w = layout.init(2);
            let rows = 5;
            let x = values(rows * 7, 3);
            let dq = values(rows * layout.n_outputs(), 4);

            let mut weights = PackedWeights::new(&layout, true);
            weights.pack(&layout, &w);
            let mut acts = Activations::new(&layout, rows + 2);
            acts.set_states(0, &x);
            forward(&layout, &w, &weights, rows, &mut acts);
            let mut deltas = Deltas::new(&layout, rows + 1);
            deltas.set_gradient(&layout, &dq);
            backward(&weights, &acts, rows, &mut deltas);
            let mut gradient = vec![0.0; layout.len()];
            let part = GradientPart { acts: &acts, deltas: &deltas, rows };
            parameter_gradient(&layout, &[part], &mut gradient, false);

            let objective = |w: &[f64]| -> f64 {
                (0..rows)
                    .map(|r| {
                        let x: Vec<f64> = x[r * 7..r * 7 + 7].iter().map(|&v| f64::from(v)).collect();
                        let q = reference(&layout, w, &x);
                        let dq = &dq[r * layout.n_outputs()..][..layout.n_outputs()];
                        q.iter().zip(dq).map(|(q, &d)| q * f64::from(d)).sum::<f64>()
                    })
                    .sum()
            };
            let w64: Vec<f64> = w.iter().map(|&v| f64::from(v)).collect();
            for i in 0..layout.len() {
                let mut moved = w64.clone();
                let step = 1e-5;
                moved[i] = w64[i] + step;
                let up = objective(&moved);
                moved[i] = w64[i] - step;
                let want = (up - objective(&moved)) / (2.0 * step);
                let got = f64::from(gradient[i]);
                assert!((got - want).abs() < 2e-5, "{head:?} {dueling} parameter {i}: {got}, not {want}");
            }

            // Twice the same part, or added to what was there, is twice the gradient.
            let mut twice = vec![0.0; layout.len()];
            parameter_gradient(&layout, &[part, part], &mut twice, false);
            let mut added = gradient.clone();
            parameter_gradient(&layout, &[part], &mut added, true);
            for i in 0..layout.len() {
                assert!((twice[i] - 2.0 * gradient[i]).abs() < 2e-5);
                assert!((added[i] - 2.0 * gradient[i]).abs() < 2e-5);
            }
        }
    }
}

/// A row's Q-values are the same bits alone, in a small batch and in a large one, and at any place in it.
#[test]
fn a_row_does_not_depend_on_its_batch() {
    let layout = MlpLayout::new(shape(&[37, 20], Head::Factored, true));
    let w = layout.init(4);
    let x = values(200 * 7, 2);
    let all = q_values(&layout, &w, &x);
    for rows in 1..=20 {
        let first = 200 - rows;
        assert_eq!(q_values(&layout, &w, &x[first * 7..]), all[first * 45..], "{rows} rows");
    }
}

/// The contract of the parameter gradient: segments of rows are chains of their own, added one after the other, wherever
/// the rows are cut into parts.
#[test]
fn a_gradient_is_the_sum_of_its_segments() {
    let layout = MlpLayout::new(shape(&[9, 6], Head::Branching, true));
    let w = layout.init(2);
    let mut weights = PackedWeights::new(&layout, true);
    weights.pack(&layout, &w);
    let rows = 2 * SEGMENT + 90;
    let (x, dq) = (values(rows * 7, 3), values(rows * layout.n_outputs(), 4));
    let part = |of: std::ops::Range<usize>| {
        let mut acts = Activations::new(&layout, of.len());
        acts.set_states(0, &x[of.start * 7..of.end * 7]);
        forward(&layout, &w, &weights, of.len(), &mut acts);
        let mut deltas = Deltas::new(&layout, of.len());
        deltas.set_gradient(&layout, &dq[of.start * layout.n_outputs()..of.end * layout.n_outputs()]);
        backward(&weights, &acts, of.len(), &mut deltas);
        (acts, deltas, of.len())
    };
    let gradient = |cuts: &[usize], onto: Option<Vec<f32>>| {
        let parts: Vec<_> = cuts.windows(2).map(|cut| part(cut[0]..cut[1])).collect();
        let parts: Vec<_> =
            parts.iter().map(|(acts, deltas, rows)| GradientPart { acts, deltas, rows: *rows }).collect();
        let accumulate = onto.is_some();
        let mut gradient = onto.unwrap_or_else(|| vec![9.0; layout.len()]);
        parameter_gradient(&layout, &parts, &mut gradient, accumulate);
        gradient
    };
    let whole = gradient(&[0, rows], None);
    for cuts in [vec![0, 48, 96, 300, 311, rows], vec![0, 1, SEGMENT, rows - 1, rows]] {
        assert_eq!(gradient(&cuts, None), whole, "{cuts:?}");
    }
    let mut by_segment = gradient(&[0, SEGMENT], None);
    by_segment = gradient(&[SEGMENT, 2 * SEGMENT], Some(by_segment));
    by_segment = gradient(&[2 * SEGMENT, rows], Some(by_segment));
    assert_eq!(by_segment, whole);
}
