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
    constants: BTreeMap<String, Matrix>,
}

/// f64 `[rows, cols]`, row-major; a vector is one row.
#[derive(Clone, Debug)]
struct Matrix {
    rows: usize,
    cols: usize,
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
            let (rows, cols) = match tensor.dims[..] {
                [n] => (1, n as usize),
                [rows, cols] => (rows as usize, cols as usize),
                _ => return Err(format!("{} has shape {:?}", tensor.name, tensor.dims)),
            };
            if rows.checked_mul(cols) != Some(data.len()) {
                return Err(format!(
                    "{} holds {} values for shape {:?}",
                    tensor.name,
                    data.len(),
                    tensor.dims
                ));
            }
            constants.insert(tensor.name, Matrix { rows, cols, data });
        }
        Ok(Self { nodes: graph.node, constants })
    }

    /// Q-values of `states`, f32 `[rows, state_dim]`, as f64 `[rows, n_outputs]`.
    pub(crate) fn q_values(&self, states: &[f32], state_dim: usize) -> Result<Vec<f64>, String> {
        let data = states.iter().map(|&x| f64::from(x)).collect();
        let state = Matrix { rows: states.len() / state_dim, cols: state_dim, data };
        let mut values = BTreeMap::from([(INPUT.to_owned(), state)]);
        for node in &self.nodes {
            let outputs = self.run(node, &values).map_err(|why| format!("node {}: {why}", node.name))?;
            values.extend(node.output.iter().cloned().zip(outputs));
        }
        values.remove(OUTPUT).map(|q| q.data).ok_or_else(|| format!("no node gives {OUTPUT}"))
    }

    fn run(&self, node: &Node, values: &BTreeMap<String, Matrix>) -> Result<Vec<Matrix>, String> {
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            let found = values.get(name).or_else(|| self.constants.get(name));
            inputs.push(found.ok_or_else(|| format!("nothing gives its input {name}"))?);
        }
        let one = |result: Result<Matrix, String>| result.map(|matrix| vec![matrix]);
        match (node.op_type.as_str(), &inputs[..]) {
            ("Gemm", [x, weight, bias]) if node.int("transB") == Some(1) => one(gemm(x, weight, bias)),
            ("Relu", [x]) => one(Ok(x.map(|v| v.max(0.0)))),
            ("ReduceMean", [x]) if node.axes() == [1] && node.int("keepdims") == Some(1) => one(Ok(x.mean())),
            ("Sub", [x, y]) => one(x.with_column(y, |a, b| a - b)),
            ("Add", [x, y]) => one(x.with_column(y, |a, b| a + b)),
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

    fn axes(&self) -> &[i64] {
        self.attribute.iter().find(|attribute| attribute.name == "axes").map_or(&[], |axes| &axes.ints)
    }
}

impl Matrix {
    fn row(&self, r: usize) -> &[f64] {
        &self.data[r * self.cols..(r + 1) * self.cols]
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { data: self.data.iter().map(|&v| f(v)).collect(), ..*self }
    }

    /// The mean of each row, one column.
    fn mean(&self) -> Self {
        let mean = |r| self.row(r).iter().sum::<f64>() / self.cols as f64;
        Self { rows: self.rows, cols: 1, data: (0..self.rows).map(mean).collect() }
    }

    /// `f` of each value and the value of `column` in its row.
    fn with_column(&self, column: &Self, f: impl Fn(f64, f64) -> f64) -> Result<Self, String> {
        if (column.rows, column.cols) != (self.rows, 1) {
            return Err(format!("a column of {} rows was expected", self.rows));
        }
        let data = (0..self.rows).flat_map(|r| self.row(r).iter().map(move |&v| (v, column.data[r])));
        Ok(Self { data: data.map(|(a, b)| f(a, b)).collect(), ..*self })
    }

    fn split(&self, sizes: &[f64]) -> Result<Vec<Self>, String> {
        if sizes.iter().any(|&n| n < 0.0) || sizes.iter().sum::<f64>() != self.cols as f64 {
            return Err(format!("{} columns cannot be split into {sizes:?}", self.cols));
        }
        let mut start = 0;
        let part = |&size: &f64| {
            let cols = start..start + size as usize;
            start = cols.end;
            let data = (0..self.rows).flat_map(|r| self.row(r)[cols.clone()].to_vec()).collect();
            Self { rows: self.rows, cols: cols.len(), data }
        };
        Ok(sizes.iter().map(part).collect())
    }
}

/// `x weight^T + bias`.
fn gemm(x: &Matrix, weight: &Matrix, bias: &Matrix) -> Result<Matrix, String> {
    if weight.cols != x.cols || (bias.rows, bias.cols) != (1, weight.rows) {
        return Err(format!("{} columns do not fit a weight of {} by {}", x.cols, weight.rows, weight.cols));
    }
    let mut data = Vec::with_capacity(x.rows * weight.rows);
    for r in 0..x.rows {
        for (o, bias) in bias.data.iter().enumerate() {
            data.push(bias + x.row(r).iter().zip(weight.row(o)).map(|(a, b)| a * b).sum::<f64>());
        }
    }
    Ok(Matrix { rows: x.rows, cols: weight.rows, data })
}

fn concat(parts: &[&Matrix]) -> Result<Matrix, String> {
    let rows = parts.first().map_or(0, |part| part.rows);
    if parts.iter().any(|part| part.rows != rows) {
        return Err("parts of different numbers of rows".to_owned());
    }
    let data = (0..rows).flat_map(|r| parts.iter().flat_map(move |part| part.row(r).to_vec())).collect();
    Ok(Matrix { rows, cols: parts.iter().map(|part| part.cols).sum(), data })
}
