//! What an ONNX file computes, worked out in f64 by the definition of each operator.
//!
//! It knows the operators that [`encode`](super::encode) writes and refuses any other by name. It is for checking a
//! written file, not for speed.

use std::collections::BTreeMap;

use prost::Message as _;

use super::proto::{ModelProto, Node, data_type};
use super::{INPUT, OUTPUT};

/// A model read from a file.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    constants: BTreeMap<String, Array>,
}

/// f64 of any shape, the last dimension fastest.
#[derive(Clone, Debug)]
struct Array {
    dims: Vec<usize>,
    data: Vec<f64>,
}

impl Graph {
    /// Reads an ONNX file, or says why it cannot be used.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let model = ModelProto::decode(bytes).map_err(|error| format!("it is no ONNX file: {error}"))?;
        let graph = model.graph.ok_or("it holds no graph")?;
        let mut constants = BTreeMap::new();
        for tensor in graph.initializer {
            let data: Vec<f64> = match tensor.data_type {
                data_type::FLOAT => {
                    tensor.raw_data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
                }
                data_type::INT64 => {
                    tensor.raw_data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect()
                }
                other => return Err(format!("{} has data type {other}", tensor.name)),
            };
            let dims: Option<Vec<usize>> = tensor.dims.iter().map(|&n| usize::try_from(n).ok()).collect();
            let size = dims.as_deref().and_then(size);
            match dims {
                Some(dims) if size == Some(data.len()) => {
                    constants.insert(tensor.name, Array { dims, data });
                }
                _ => {
                    let (name, held) = (tensor.name, data.len());
                    return Err(format!("{name} holds {held} values for shape {:?}", tensor.dims));
                }
            }
        }
        Ok(Self { nodes: graph.node, constants })
    }

    /// Q-values of `states`, f32 `[rows, state_dim]`, as f64 `[rows, n_outputs]`.
    pub(crate) fn q_values(&self, states: &[f32], state_dim: usize) -> Result<Vec<f64>, String> {
        let data = states.iter().map(|&x| f64::from(x)).collect();
        let state = Array { dims: vec![states.len() / state_dim, state_dim], data };
        let mut values = BTreeMap::from([(INPUT.to_owned(), state)]);
        for node in &self.nodes {
            let outputs = self.run(node, &values).map_err(|why| format!("node {}: {why}", node.name))?;
            values.extend(node.output.iter().cloned().zip(outputs));
        }
        values.remove(OUTPUT).map(|q| q.data).ok_or_else(|| format!("no node gives {OUTPUT}"))
    }

    fn run(&self, node: &Node, values: &BTreeMap<String, Array>) -> Result<Vec<Array>, String> {
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            let found = values.get(name).or_else(|| self.constants.get(name));
            inputs.push(found.ok_or_else(|| format!("nothing gives its input {name}"))?);
        }
        let one = |result: Result<Array, String>| result.map(|array| vec![array]);
        let keep = node.int("keepdims") == Some(1);
        match (node.op_type.as_str(), &inputs[..]) {
            ("Gemm", [x, weight, bias]) if node.int("transB") == Some(1) => one(gemm(x, weight, bias)),
            ("Relu", [x]) => one(Ok(x.map(|v| v.max(0.0)))),
            ("Softmax", [x]) if node.int("axis") == Some(x.dims.len() as i64 - 1) => one(softmax(x)),
            ("Reshape", [x, dims]) => one(x.reshaped(&dims.data)),
            ("ReduceMean", [x]) => one(x.sum(node.axis(), keep).map(|(sum, n)| sum.map(|v| v / n))),
            ("ReduceSum", [x, axes]) if axes.data.len() == 1 => {
                one(x.sum(Some(axes.data[0] as i64), keep).map(|(sum, _)| sum))
            }
            ("Sub", [x, y]) => one(x.with(y, |a, b| a - b)),
            ("Add", [x, y]) => one(x.with(y, |a, b| a + b)),
            ("Mul", [x, y]) => one(x.with(y, |a, b| a * b)),
            ("Split", [x, sizes]) if node.int("axis") == Some(1) => x.split(&sizes.data),
            ("Concat", parts) if node.int("axis") == Some(1) => one(concat(parts)),
            (op, inputs) => Err(format!("{op} of {} inputs with such attributes is not known", inputs.len())),
        }
    }
}

impl Node {
    fn int(&self, name: &str) -> Option<i64> {
        self.attribute.iter().find(|attribute| attribute.name == name)?.i
    }

    /// The one axis of the attribute `axes`.
    fn axis(&self) -> Option<i64> {
        match self.attribute.iter().find(|attribute| attribute.name == "axes")?.ints[..] {
            [axis] => Some(axis),
            _ => None,
        }
    }
}

/// Values of an array of such dimensions, if the number fits.
fn size(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1_usize, |size, &n| size.checked_mul(n))
}

impl Array {
    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { data: self.data.iter().map(|&v| f(v)).collect(), dims: self.dims.clone() }
    }

    /// What lies before an axis, along it and behind it.
    fn around(&self, axis: usize) -> Result<[usize; 3], String> {
        let Some(&n) = self.dims.get(axis) else { return Err(format!("{:?} has no axis {axis}", self.dims)) };
        Ok([self.dims[..axis].iter().product(), n, self.dims[axis + 1..].iter().product()])
    }

    /// The sum over an axis, and how many values each is of.
    fn sum(&self, axis: Option<i64>, keep: bool) -> Result<(Self, f64), String> {
        let axis = axis.and_then(|axis| usize::try_from(axis).ok()).ok_or("one axis was expected")?;
        let [before, n, behind] = self.around(axis)?;
        let mut data = vec![0.0; before * behind];
        for (at, v) in self.data.iter().enumerate() {
            data[at / (n * behind) * behind + at % behind] += v;
        }
        let mut dims = self.dims.clone();
        if keep {
            dims[axis] = 1;
        } else {
            dims.remove(axis);
        }
        Ok((Self { dims, data }, n as f64))
    }

    /// `f` of each value and the one of `other` in its place, which may be one for all along an axis.
    fn with(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Result<Self, String> {
        let missing = self.dims.len().checked_sub(other.dims.len());
        let dims: Vec<usize> =
            std::iter::repeat_n(1, missing.unwrap_or(0)).chain(other.dims.iter().copied()).collect();
        if dims.len() != self.dims.len() || self.dims.iter().zip(&dims).any(|(&a, &b)| b != a && b != 1) {
            return Err(format!("{:?} does not go with {:?}", other.dims, self.dims));
        }
        let place = |mut at: usize| {
            let (mut place, mut step) = (0, 1);
            for (&n, &m) in self.dims.iter().zip(&dims).rev() {
                place += if m == 1 { 0 } else { at % n * step };
                (at, step) = (at / n, step * m);
            }
            place
        };
        let data = self.data.iter().enumerate().map(|(at, &v)| f(v, other.data[place(at)])).collect();
        Ok(Self { dims: self.dims.clone(), data })
    }

    /// The same values in other dimensions, of which one may be -1: what is left.
    fn reshaped(&self, to: &[f64]) -> Result<Self, String> {
        let known: f64 = to.iter().filter(|&&n| n >= 0.0).product();
        let left = self.data.len() as f64 / known;
        let dims: Vec<usize> = to.iter().map(|&n| if n < 0.0 { left as usize } else { n as usize }).collect();
        if to.iter().filter(|&&n| n < 0.0).count() > 1 || size(&dims) != Some(self.data.len()) {
            return Err(format!("{:?} is no shape for {:?}", to, self.dims));
        }
        Ok(Self { dims, data: self.data.clone() })
    }

    /// Parts along the second axis.
    fn split(&self, sizes: &[f64]) -> Result<Vec<Self>, String> {
        let [before, n, behind] = self.around(1)?;
        if sizes.iter().any(|&n| n < 0.0) || sizes.iter().sum::<f64>() != n as f64 {
            return Err(format!("{n} columns cannot be split into {sizes:?}"));
        }
        let mut start = 0;
        let part = |&size: &f64| {
            let columns = start..start + size as usize;
            start = columns.end;
            let row = |r: usize| {
                let first = r * n * behind;
                self.data[first + columns.start * behind..first + columns.end * behind].iter().copied()
            };
            let mut dims = self.dims.clone();
            dims[1] = columns.len();
            Self { data: (0..before).flat_map(row).collect(), dims }
        };
        Ok(sizes.iter().map(part).collect())
    }
}

/// Over the last axis.
fn softmax(x: &Array) -> Result<Array, String> {
    let n = *x.dims.last().ok_or("a softmax of one number")?;
    let mut data = x.data.clone();
    for row in data.chunks_mut(n.max(1)) {
        let largest = row.iter().fold(f64::NEG_INFINITY, |largest, &v| largest.max(v));
        row.iter_mut().for_each(|v| *v = (*v - largest).exp());
        let total: f64 = row.iter().sum();
        row.iter_mut().for_each(|v| *v /= total);
    }
    Ok(Array { dims: x.dims.clone(), data })
}

/// `x weight^T + bias`.
fn gemm(x: &Array, weight: &Array, bias: &Array) -> Result<Array, String> {
    let (&[rows, n_in], &[n_out, width], &[biases]) = (&x.dims[..], &weight.dims[..], &bias.dims[..]) else {
        return Err(format!("{:?}, {:?} and {:?} do not fit", x.dims, weight.dims, bias.dims));
    };
    if width != n_in || biases != n_out {
        return Err(format!("{n_in} columns do not fit a weight of {n_out} by {width}"));
    }
    let mut data = Vec::with_capacity(rows * n_out);
    for x in x.data.chunks_exact(n_in) {
        for (weight, bias) in weight.data.chunks_exact(n_in).zip(&bias.data) {
            data.push(bias + x.iter().zip(weight).map(|(a, b)| a * b).sum::<f64>());
        }
    }
    Ok(Array { dims: vec![rows, n_out], data })
}

/// Along the second axis.
fn concat(parts: &[&Array]) -> Result<Array, String> {
    let first = parts.first().ok_or("nothing to join")?;
    let [before, _, behind] = first.around(1)?;
    let mut columns = 0;
    for part in parts {
        let [rows, n, inner] = part.around(1)?;
        if (rows, inner) != (before, behind) {
            return Err(format!("{:?} does not go with {:?}", part.dims, first.dims));
        }
        columns += n;
    }
    let row = |r: usize| {
        parts.iter().flat_map(move |part| {
            let width = part.data.len() / before.max(1);
            part.data[r * width..(r + 1) * width].iter().copied()
        })
    };
    let mut dims = first.dims.clone();
    dims[1] = columns;
    Ok(Array { data: (0..before).flat_map(row).collect(), dims })
}
