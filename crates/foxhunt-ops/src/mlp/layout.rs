//! Where each parameter lies in the flat array, and what it starts as.

use foxhunt_core::settings::NetworkSettings;
use foxhunt_core::{ActionSpace, Philox, Purpose, ReturnModel};

/// What a network is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct MlpShape {
    /// Values of a state.
    pub state_dim: usize,
    /// Units of each hidden layer; may be empty.
    pub hidden: Vec<usize>,
    /// The decision.
    pub head: ActionSpace,
    /// Value and advantage streams.
    pub dueling: bool,
    /// What the head says of the return of an action.
    pub returns: ReturnModel,
}

impl MlpShape {
    /// The network of `settings` for states of `state_dim` values, over `head`.
    #[must_use]
    pub fn of(settings: &NetworkSettings, state_dim: usize, head: ActionSpace) -> Self {
        let (hidden, dueling, returns) = (settings.hidden.clone(), settings.dueling, settings.returns());
        Self { state_dim, hidden, head, dueling, returns }
    }
}

/// One named array of the flat parameter array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name, for example `layer0.weight`.
    pub name: String,
    /// First element in the flat array.
    pub offset: usize,
    /// `[out, in]` of a weight, `[out]` of a bias.
    pub shape: Vec<usize>,
    /// Inputs of the layer it belongs to.
    pub fan_in: usize,
}

impl Parameter {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements; never so for a network with inputs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its elements in the flat array.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// One linear layer as the arithmetic sees it; the head is a single layer whether dueling or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Inputs.
    pub n_in: usize,
    /// Outputs.
    pub n_out: usize,
    /// First element of the weight, `[n_out, n_in]`.
    pub weight: usize,
    /// First element of the bias, `[n_out]`.
    pub bias: usize,
}

impl Layer {
    /// The weight within the flat array.
    #[must_use]
    pub fn weight<'a>(&self, parameters: &'a [f32]) -> &'a [f32] {
        &parameters[self.weight..self.weight + self.n_out * self.n_in]
    }

    /// The bias within the flat array.
    #[must_use]
    pub fn bias<'a>(&self, parameters: &'a [f32]) -> &'a [f32] {
        &parameters[self.bias..self.bias + self.n_out]
    }
}

/// The layout of one network's flat parameter array.
#[derive(Clone, Debug, PartialEq)]
pub struct MlpLayout {
    shape: MlpShape,
    parameters: Vec<Parameter>,
    layers: Vec<Layer>,
    len: usize,
    n_weights: usize,
    /// What scales begin as, times the root of their layer's inputs; none without noise.
    noise: Option<f32>,
}

impl MlpLayout {
    /// Lays out a network.
    #[must_use]
    pub fn new(shape: MlpShape) -> Self {
        let (parameters, layers) = (Vec::new(), Vec::new());
        let mut layout = Self { parameters, layers, len: 0, n_weights: 0, noise: None, shape: shape.clone() };
        let mut n_in = shape.state_dim;
        for (l, &n_out) in shape.hidden.iter().enumerate() {
            let weight = layout.push(format!("layer{l}.weight"), vec![n_out, n_in], n_in);
            let bias = layout.push(format!("layer{l}.bias"), vec![n_out], n_in);
            layout.layers.push(Layer { n_in, n_out, weight, bias });
            n_in = n_out;
        }
        let (n_values, atoms) = (layout.n_values(), shape.returns.atoms());
        let [value, advantage, q] = head_names(&shape.returns);
        let (weight, bias, n_out) = if shape.dueling {
            let weight = layout.push(format!("{value}.weight"), vec![atoms, n_in], n_in);
            layout.push(format!("{advantage}.weight"), vec![n_values, n_in], n_in);
            let bias = layout.push(format!("{value}.bias"), vec![atoms], n_in);
            layout.push(format!("{advantage}.bias"), vec![n_values], n_in);
            (weight, bias, atoms + n_values)
        } else {
            let weight = layout.push(format!("{q}.weight"), vec![n_values, n_in], n_in);
            (weight, layout.push(format!("{q}.bias"), vec![n_values], n_in), n_values)
        };
        layout.layers.push(Layer { n_in, n_out, weight, bias });
        layout.n_weights = layout.len;
        layout
    }

    /// The same, and with `noise` a scale beside each parameter ([`crate::noise`]): all of them behind the parameters, in
    /// their order and under their names with `_sigma` at the end, at first `noise / sqrt(in)`.
    #[must_use]
    pub fn with_noise(shape: MlpShape, noise: Option<f32>) -> Self {
        let mut layout = Self::new(shape);
        layout.noise = noise;
        if noise.is_some() {
            for Parameter { name, shape, fan_in, .. } in layout.parameters.clone() {
                layout.push(format!("{name}_sigma"), shape, fan_in);
            }
        }
        layout
    }

    /// The layout without scales: what acts without noise.
    #[must_use]
    pub fn means(&self) -> Self {
        Self::new(self.shape.clone())
    }

    /// Whether the layers have noise.
    #[must_use]
    pub fn is_noisy(&self) -> bool {
        self.noise.is_some()
    }

    /// Elements that products read: [`MlpLayout::len`], or half of it with noise. They come first.
    #[must_use]
    pub fn n_weights(&self) -> usize {
        self.n_weights
    }

    /// What the network is made of.
    #[must_use]
    pub fn shape(&self) -> &MlpShape {
        &self.shape
    }

    /// The table of names, offsets and shapes, in order of offset and without holes.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The linear layers, the head last.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The head layer.
    #[must_use]
    pub fn head(&self) -> Layer {
        self.layers[self.layers.len() - 1]
    }

    /// Q-values a row.
    #[must_use]
    pub fn n_outputs(&self) -> usize {
        self.shape.head.n_outputs()
    }

    /// What the head says of a row, dueling streams combined: its Q-values, or the atoms of the first, the second, ...
    #[must_use]
    pub fn n_values(&self) -> usize {
        self.n_outputs() * self.shape.returns.atoms()
    }

    /// Elements of the flat array.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no parameters; never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The initial parameters of `seed`; see the [module](super) for the rule.
    #[must_use]
    pub fn init(&self, seed: u64) -> Vec<f32> {
        let philox = Philox::new(seed);
        let mut values = Vec::with_capacity(self.len);
        for (p, parameter) in self.parameters.iter().enumerate() {
            if let Some(noise) = self.noise.filter(|_| parameter.offset >= self.n_weights) {
                values.resize(values.len() + parameter.len(), noise / (parameter.fan_in as f32).sqrt());
                continue;
            }
            let bound = 1.0 / (parameter.fan_in as f32).sqrt();
            let mut stream = philox.stream(Purpose::Init, p as u32, 0);
            values.extend((0..parameter.len()).map(|_| bound * (2.0 * stream.next_f32() - 1.0)));
        }
        values
    }

    fn push(&mut self, name: String, shape: Vec<usize>, fan_in: usize) -> usize {
        let offset = self.len;
        let parameter = Parameter { name, offset, shape, fan_in };
        self.len += parameter.len();
        self.parameters.push(parameter);
        offset
    }
}

/// Names of the value and the advantage stream, and of a head without them. They tell what the outputs are, so that arrays
/// of one kind are not taken for those of another.
#[must_use]
pub const fn head_names(returns: &ReturnModel) -> [&'static str; 3] {
    match returns {
        ReturnModel::Mean => ["value", "advantage", "q"],
        ReturnModel::Categorical { .. } => ["value_logits", "advantage_logits", "q_logits"],
        ReturnModel::Quantiles { .. } => ["value_quantiles", "advantage_quantiles", "q_quantiles"],
    }
}
