//! A policy's network as an ONNX model, and the value of such a model for given states.
//!
//! The graph is one Gemm a layer with Relu between, and for a dueling network the combination of
//! [`foxhunt_ops::mlp`]: value plus advantage minus the branch's mean advantage. Distributions of the return are laid out
//! as `[N, actions, atoms]` and end in their expectations. ONNX leaves open what Relu makes of a NaN, so states have to
//! be finite. Operator set 13 and IR version 7 (ONNX 1.8, 2020), so that old runtimes read it too.

mod evaluate;
mod proto;

use foxhunt_core::ReturnModel;
use foxhunt_ops::mlp::{MlpLayout, head_names};
use prost::Message as _;

pub(super) use evaluate::Graph;

use self::proto::{
    Attribute, Dimension, GraphProto, ModelProto, Node, OperatorSet, StringEntry, Tensor, TensorShape,
    TensorType, TypeProto, ValueInfo, attribute_type, data_type,
};
use super::metadata;
use crate::Policy;

/// Version of the operators' meaning.
pub const OPSET: i64 = 13;
/// Version of the file format.
pub const IR_VERSION: i64 = 7;
/// Name of the input, f32 `[N, state_dim]`.
pub const INPUT: &str = "state";
/// Name of the output, f32 `[N, n_outputs]`.
pub const OUTPUT: &str = "q_values";

/// The ONNX file of `policy`.
#[must_use]
pub fn encode(policy: &Policy) -> Vec<u8> {
    let metadata_props =
        metadata::of(policy).into_iter().map(|(key, value)| StringEntry { key, value }).collect();
    let model = ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: "foxhunt".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(graph(policy.layout(), policy.parameters())),
        opset_import: vec![OperatorSet { domain: String::new(), version: Some(OPSET) }],
        metadata_props,
    };
    model.encode_to_vec()
}

/// Puts nodes and constants together.
#[derive(Default)]
struct Builder {
    node: Vec<Node>,
    initializer: Vec<Tensor>,
}

impl Builder {
    /// Adds a node of one output, which it is named by.
    fn node(&mut self, op_type: &str, input: &[&str], output: &str, attribute: Vec<Attribute>) -> String {
        self.node.push(Node {
            input: input.iter().map(|name| (*name).to_owned()).collect(),
            output: vec![output.to_owned()],
            name: output.to_owned(),
            op_type: op_type.to_owned(),
            attribute,
        });
        output.to_owned()
    }

    /// `input W^T + b` with the arrays `{name}.weight` and `{name}.bias`.
    fn linear(&mut self, input: &str, name: &str, output: &str) -> String {
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        self.node("Gemm", &[input, &weight, &bias], output, vec![int("transB", 1)])
    }

    /// A constant of whole numbers.
    fn whole_numbers(&mut self, name: &str, values: &[i64]) -> String {
        self.initializer.push(Tensor {
            dims: vec![values.len() as i64],
            data_type: data_type::INT64,
            name: name.to_owned(),
            raw_data: values.iter().flat_map(|n| n.to_le_bytes()).collect(),
        });
        name.to_owned()
    }

    /// `input`, `[N, actions * atoms]`, as `[N, actions, atoms]`.
    fn by_atom(&mut self, input: &str, actions: usize, atoms: usize) -> String {
        let dims = self.whole_numbers(&format!("{input}_shape"), &[-1, actions as i64, atoms as i64]);
        self.node("Reshape", &[input, &dims], &format!("{input}_by_atom"), Vec::new())
    }

    /// `advantage` minus its mean over the actions of each row.
    fn centred(&mut self, advantage: &str) -> String {
        let attributes = vec![ints("axes", &[1]), int("keepdims", 1)];
        let mean = self.node("ReduceMean", &[advantage], &format!("{advantage}_mean"), attributes);
        self.node("Sub", &[advantage, &mean], &format!("{advantage}_centred"), Vec::new())
    }
}

fn graph(layout: &MlpLayout, parameters: &[f32]) -> GraphProto {
    let shape = layout.shape();
    let mut b = Builder::default();
    for parameter in layout.parameters() {
        let values = &parameters[parameter.range()];
        b.initializer.push(Tensor {
            dims: parameter.shape.iter().map(|&n| n as i64).collect(),
            data_type: data_type::FLOAT,
            name: parameter.name.clone(),
            raw_data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        });
    }
    let mut hidden = INPUT.to_owned();
    for l in 0..shape.hidden.len() {
        let sum = b.linear(&hidden, &format!("layer{l}"), &format!("layer{l}_sum"));
        hidden = b.node("Relu", &[&sum], &format!("layer{l}_out"), Vec::new());
    }
    let [value, advantage, q] = head_names(&shape.returns);
    // The Q-values themselves, or what their distributions are made of.
    let (atoms, mean) = (shape.returns.atoms(), shape.returns.is_mean());
    let output = if mean { OUTPUT } else { "values" };
    let by_atom = |b: &mut Builder, input: String, actions: usize| {
        if mean { input } else { b.by_atom(&input, actions, atoms) }
    };
    let values = if shape.dueling {
        let value = b.linear(&hidden, value, "value");
        let advantage = b.linear(&hidden, advantage, "advantage");
        let value = by_atom(&mut b, value, 1);
        let advantage = by_atom(&mut b, advantage, layout.n_outputs());
        let centred = match shape.head.branches() {
            [_] => b.centred(&advantage),
            branches => split_and_centre(&mut b, &advantage, branches),
        };
        b.node("Add", &[&centred, &value], output, Vec::new())
    } else {
        let values = b.linear(&hidden, q, output);
        by_atom(&mut b, values, layout.n_outputs())
    };
    expectations(&mut b, &shape.returns, &values);
    GraphProto {
        node: b.node,
        name: "q_network".to_owned(),
        initializer: b.initializer,
        input: vec![matrix(INPUT, shape.state_dim)],
        output: vec![matrix(OUTPUT, layout.n_outputs())],
    }
}

/// The means of distributions, `[N, actions, atoms]`.
fn expectations(b: &mut Builder, returns: &ReturnModel, values: &str) {
    match *returns {
        ReturnModel::Mean => {}
        ReturnModel::Categorical { atoms, v_min, v_max } => {
            let step = (v_max - v_min) / (atoms - 1) as f64;
            let returns = (0..atoms).map(|j| (v_min + j as f64 * step) as f32);
            b.initializer.push(Tensor {
                dims: vec![atoms as i64],
                data_type: data_type::FLOAT,
                name: "returns".to_owned(),
                raw_data: returns.flat_map(f32::to_le_bytes).collect(),
            });
            let p = b.node("Softmax", &[values], "probabilities", vec![int("axis", 2)]);
            let weighted = b.node("Mul", &[&p, "returns"], "weighted_returns", Vec::new());
            let axis = b.whole_numbers("atom_axis", &[2]);
            b.node("ReduceSum", &[&weighted, &axis], OUTPUT, vec![int("keepdims", 0)]);
        }
        ReturnModel::Quantiles { .. } => {
            b.node("ReduceMean", &[values], OUTPUT, vec![ints("axes", &[2]), int("keepdims", 0)]);
        }
    }
}

/// Each branch of `advantage` minus its own mean.
fn split_and_centre(b: &mut Builder, advantage: &str, branches: &[usize]) -> String {
    let branch_sizes: Vec<i64> = branches.iter().map(|&n| n as i64).collect();
    let sizes = &b.whole_numbers("branch_sizes", &branch_sizes);
    let parts: Vec<String> = (0..branches.len()).map(|d| format!("{advantage}_{d}")).collect();
    b.node("Split", &[advantage, sizes], "branches", vec![int("axis", 1)]);
    if let Some(node) = b.node.last_mut() {
        node.output.clone_from(&parts);
    }
    let centred: Vec<String> = parts.iter().map(|part| b.centred(part)).collect();
    let inputs: Vec<&str> = centred.iter().map(String::as_str).collect();
    b.node("Concat", &inputs, "centred", vec![int("axis", 1)])
}

fn int(name: &str, value: i64) -> Attribute {
    Attribute {
        name: name.to_owned(),
        i: Some(value),
        attribute_type: attribute_type::INT,
        ..Attribute::default()
    }
}

fn ints(name: &str, values: &[i64]) -> Attribute {
    Attribute {
        name: name.to_owned(),
        ints: values.to_vec(),
        attribute_type: attribute_type::INTS,
        ..Attribute::default()
    }
}

/// f32 `[N, cols]`.
fn matrix(name: &str, cols: usize) -> ValueInfo {
    let rows = Dimension { dim_value: None, dim_param: Some("N".to_owned()) };
    let cols = Dimension { dim_value: Some(cols as i64), dim_param: None };
    let tensor_type =
        TensorType { elem_type: data_type::FLOAT, shape: Some(TensorShape { dim: vec![rows, cols] }) };
    ValueInfo { name: name.to_owned(), value_type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}
