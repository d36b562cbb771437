//! From the tables of models in a fabric file to plans of training: sizes that fit, and ranks that add up.

use super::layout::ParallelLayout;
use super::training::{ComputeSpeed, TrainingPlan};
use super::transformer::Transformer;
use crate::experiment::file_table::FileTable;
use fabric_file::schema::ModelTable;
use fabric_file::{FileError, Mistake};

/// Layers, heads, numbers of a token within a model, tokens, and ranks of a kind at most: sizes of all
/// parts then fit 64 bits, and counts of operations fit 128.
const LAYERS_MAX: u32 = 1 << 14;
const WIDTH_MAX: u32 = 1 << 20;
const TOKENS_MAX: u32 = 1 << 24;
const BATCHES_MAX: u32 = 1 << 16;
const BYTES_MAX: u32 = 8;
const EXPERTS_MAX: u32 = 1 << 12;

/// The plan of a model's table, for so many ranks.
pub(in crate::experiment) fn plan(
    table: FileTable<'_>,
    model: &ModelTable,
    ranks: usize,
) -> Result<TrainingPlan, FileError> {
    sizes(table, model)?;
    let layout = layout(table, model, ranks)?;
    let plan = TrainingPlan {
        transformer: transformer(table, model)?,
        layout,
        divides_tokens: model.parallel.sequence && layout.tensor > 1,
        zero: model.zero,
        micro_batch: u64::from(model.micro_batch),
        micro_batches: model.micro_batches,
        element_bytes: u64::from(model.element_bytes),
        gradient_bytes: u64::from(model.gradient_bytes),
        speed: speed(table, model)?,
        recompute: model.recompute,
        optimizer: model.optimizer.0,
        bucket_layers: model
            .bucket_layers
            .min(model.layers / layout.pipeline)
            .max(1),
        steps: model.steps,
    };
    divisions(table, model, &plan)?;
    experts(table, model, &plan)?;
    zero(table, model, &plan)?;
    Ok(plan)
}

/// Refuses what is nothing, or too much.
fn sizes(table: FileTable<'_>, model: &ModelTable) -> Result<(), FileError> {
    let kv_heads = model.kv_heads.unwrap_or(model.heads);
    let ffn = model.ffn.unwrap_or(1);
    let fields = [
        ("layers", model.layers, LAYERS_MAX),
        ("hidden", model.hidden, WIDTH_MAX / 4),
        ("heads", model.heads, WIDTH_MAX),
        ("kv-heads", kv_heads, WIDTH_MAX),
        ("ffn", ffn, WIDTH_MAX),
        ("vocabulary", model.vocabulary, TOKENS_MAX),
        ("sequence", model.sequence, TOKENS_MAX),
        ("micro-batch", model.micro_batch, BATCHES_MAX),
        ("micro-batches", model.micro_batches, BATCHES_MAX),
        ("element-bytes", model.element_bytes, BYTES_MAX),
        ("gradient-bytes", model.gradient_bytes, BYTES_MAX),
        ("bucket-layers", model.bucket_layers, LAYERS_MAX),
        ("steps", model.steps, BATCHES_MAX),
        ("parallel.tensor", model.parallel.tensor, WIDTH_MAX),
        ("parallel.data", model.parallel.data, WIDTH_MAX),
        ("parallel.context", model.parallel.context, WIDTH_MAX),
        ("parallel.pipeline", model.parallel.pipeline, WIDTH_MAX),
        ("parallel.expert", model.parallel.expert, WIDTH_MAX),
        ("experts.count", model.experts.count, EXPERTS_MAX),
        ("experts.top", model.experts.top, EXPERTS_MAX),
    ];
    let wrong = fields
        .into_iter()
        .find(|(_, value, most)| !(1..=*most).contains(value));
    match wrong {
        None => magnitudes(table, model),
        Some((field, value, most)) => {
            let what = format!("{value} is not from 1 to {most}");
            Err(table.mistake(Mistake::Value, field, what, "a number from there"))
        }
    }
}

/// Parameters, and bytes of the tokens of a micro-batch, at most, as powers of two: sums of them fit.
const PARAMETERS_MAX: u32 = 56;
const TOKEN_BYTES_MAX: u32 = 60;

/// Refuses sizes whose products are too large.
fn magnitudes(table: FileTable<'_>, model: &ModelTable) -> Result<(), FileError> {
    let [layers, h, experts, top, v, s] = [
        model.layers,
        model.hidden,
        model.experts.count,
        model.experts.top,
        model.vocabulary,
        model.sequence,
    ]
    .map(u128::from);
    let ffn = u128::from(model.ffn.unwrap_or(4 * model.hidden));
    // More than either family has: all biases and norms are below h + ffn for each row.
    let parameters = layers * (8 * h * h + experts * 4 * h * ffn) + (3 * v + s) * h;
    let tokens = u128::from(model.micro_batch) * s;
    let bytes = tokens * top * h * u128::from(model.element_bytes);
    let (field, what) = if parameters >> PARAMETERS_MAX > 0 {
        (
            "layers",
            format!("about {parameters} parameters, and 2^{PARAMETERS_MAX} are the most"),
        )
    } else if bytes >> TOKEN_BYTES_MAX > 0 {
        let what = format!("a micro-batch of {bytes} bytes, and 2^{TOKEN_BYTES_MAX} are the most");
        ("micro-batch", what)
    } else {
        return Ok(());
    };
    Err(table.mistake(Mistake::Limit, field, what, "smaller sizes"))
}

/// The product of the kinds of parallelism is the number of ranks.
fn layout(
    table: FileTable<'_>,
    model: &ModelTable,
    ranks: usize,
) -> Result<ParallelLayout, FileError> {
    let parallel = &model.parallel;
    let sizes = [
        ("tensor", parallel.tensor),
        ("context", parallel.context),
        ("data", parallel.data),
        ("pipeline", parallel.pipeline),
    ];
    // Four numbers of 20 bits each.
    let product: u128 = sizes.iter().map(|(_, size)| u128::from(*size)).product();
    if product != ranks as u128 {
        let named = sizes
            .map(|(name, size)| format!("{name} {size}"))
            .join(" times ");
        let what = format!(
            "{named} is {product}, and the group \"{}\" has {ranks} ranks",
            model.group
        );
        let others = product / u128::from(parallel.data);
        let instead = match (ranks as u128).is_multiple_of(others) {
            true => format!("data = {}", ranks as u128 / others),
            false => format!("numbers whose product is {ranks}"),
        };
        return Err(table.mistake(Mistake::Combination, "parallel", what, &instead));
    }
    let layout = ParallelLayout {
        tensor: parallel.tensor,
        context: parallel.context,
        data: parallel.data,
        pipeline: parallel.pipeline,
        expert: parallel.expert,
    };
    if !layout.of_stage().is_multiple_of(u64::from(parallel.expert)) {
        let what = format!(
            "the {} ranks of a stage are not divided into groups of {}",
            layout.of_stage(),
            parallel.expert
        );
        let instead = "a number that divides tensor times context times data";
        return Err(table.mistake(Mistake::Combination, "parallel.expert", what, instead));
    }
    Ok(layout)
}

fn transformer(table: FileTable<'_>, model: &ModelTable) -> Result<Transformer, FileError> {
    if !model.hidden.is_multiple_of(model.heads) {
        let what = format!(
            "hidden = {} is not divided among {} heads",
            model.hidden, model.heads
        );
        return Err(table.mistake(
            Mistake::Combination,
            "heads",
            what,
            "heads that divide hidden",
        ));
    }
    let kv_heads = model.kv_heads.unwrap_or(model.heads);
    if !model.heads.is_multiple_of(kv_heads) {
        let what = format!("{} heads do not share {kv_heads} of keys", model.heads);
        let instead = "a number that divides heads";
        return Err(table.mistake(Mistake::Combination, "kv-heads", what, instead));
    }
    Ok(Transformer {
        family: model.family,
        layers: u64::from(model.layers),
        hidden: u64::from(model.hidden),
        keys: u64::from(model.hidden / model.heads) * u64::from(kv_heads),
        ffn: u64::from(model.ffn.unwrap_or(4 * model.hidden)),
        vocabulary: u64::from(model.vocabulary),
        sequence: u64::from(model.sequence),
        experts: u64::from(model.experts.count),
        top: u64::from(model.experts.top),
    })
}

/// What ranks divide comes out even.
fn divisions(
    table: FileTable<'_>,
    model: &ModelTable,
    plan: &TrainingPlan,
) -> Result<(), FileError> {
    let parallel = &model.parallel;
    let tensor = ("parallel.tensor", parallel.tensor);
    let context = ("parallel.context", parallel.context);
    let of_tensor = if plan.divides_tokens {
        parallel.tensor
    } else {
        1
    };
    let is_dense = model.experts.count == 1;
    let parts = [
        (tensor, "heads", model.heads),
        (tensor, "kv-heads", model.kv_heads.unwrap_or(model.heads)),
        (
            tensor,
            "ffn",
            if is_dense {
                plan.transformer.ffn as u32
            } else {
                0
            },
        ),
        (context, "sequence", model.sequence),
        (
            tensor,
            "sequence",
            model.sequence / parallel.context * u32::from(of_tensor > 1),
        ),
        (
            ("parallel.pipeline", parallel.pipeline),
            "layers",
            model.layers,
        ),
    ];
    for ((field, ranks), what, count) in parts {
        if !count.is_multiple_of(ranks) {
            let (unit, instead) = match field {
                "parallel.pipeline" => ("stages", "a number that divides the layers".to_owned()),
                _ => ("ranks", format!("a number that divides {count}")),
            };
            let what = format!("{what} = {count} is not divided among {ranks} {unit}");
            return Err(table.mistake(Mistake::Combination, field, what, &instead));
        }
    }
    Ok(())
}

/// Experts that ranks divide, and that tokens go to.
fn experts(table: FileTable<'_>, model: &ModelTable, plan: &TrainingPlan) -> Result<(), FileError> {
    let (count, top, expert) = (
        model.experts.count,
        model.experts.top,
        model.parallel.expert,
    );
    let (field, what, instead) = if top > count {
        let what = format!("each token goes to {top} of {count} experts");
        ("experts.top", what, "as many as there are, at most")
    } else if !count.is_multiple_of(expert) {
        let what = format!("{count} experts are not divided among {expert} ranks");
        (
            "parallel.expert",
            what,
            "a number that divides experts.count",
        )
    } else if count > 1 && model.parallel.tensor > 1 && !plan.divides_tokens {
        let what = "each rank of a tensor group has all tokens, and would send them all to experts"
            .to_owned();
        (
            "parallel.sequence",
            what,
            "sequence = true: each then sends its own",
        )
    } else {
        return Ok(());
    };
    Err(table.mistake(Mistake::Combination, field, what, instead))
}

/// What replicas divide of a model.
fn zero(table: FileTable<'_>, model: &ModelTable, plan: &TrainingPlan) -> Result<(), FileError> {
    let (what, instead) = if plan.zero > 3 {
        ("there are stages 0 to 3", "one of these")
    } else if plan.zero > 1 && plan.layout.pipeline > 1 {
        let what = "gradients and parameters that are divided, and stages of a pipeline: each \
                    micro-batch would add up its gradients";
        (what, "zero = 1, or pipeline = 1")
    } else if plan.zero > 2 && model.experts.count > 1 {
        (
            "parameters of experts are not gathered",
            "zero = 2, or no experts",
        )
    } else {
        return Ok(());
    };
    Err(table.mistake(Mistake::Combination, "zero", what.to_owned(), instead))
}

fn speed(table: FileTable<'_>, model: &ModelTable) -> Result<ComputeSpeed, FileError> {
    match (model.layer_time, model.flops) {
        (Some(_), Some(_)) => {
            let what = "layer-time and flops both say how fast ranks compute".to_owned();
            Err(table.mistake(Mistake::Combination, "layer-time", what, "leave out one"))
        }
        (Some(time), None) => Ok(ComputeSpeed::LayerTime(time.0)),
        (None, Some(flops)) => {
            let reached = (u128::from(flops.0) * u128::from(model.efficiency.0)) >> 32;
            if reached > 0 {
                return Ok(ComputeSpeed::Flops(reached));
            }
            let what = "ranks never compute anything".to_owned();
            Err(table.mistake(Mistake::Value, "efficiency", what, "such as \"45%\""))
        }
        (None, None) => {
            let what = "nothing says how fast ranks compute".to_owned();
            let instead = "add flops = \"312TFLOP/s\" with efficiency = \"45%\", or layer-time";
            Err(table.mistake(Mistake::Combination, "flops", what, instead))
        }
    }
}
