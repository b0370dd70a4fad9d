"""Token ids -> embeddings -> layers -> heads -> loss: BERT as in Devlin et al. 2018 (arXiv:1810.04805).

input_ids (B, S), attention_mask (B, S)  ->  last_hidden_state (B, S, H), pooler_output (B, H)

Parameter names, argument names and outputs are those of stock `transformers.Bert*`, so weights go both ways.

Shapes: B batch, S positions, T real tokens in the batch, R positions a head reads, Q most of them in one
sequence, H hidden, N heads, D = H / N, V vocabulary. Layers work on (B, S, H), padding included, or on
(T, H), real tokens alone; only attention looks at which it is: it alone needs to know where a sequence ends.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_hfbert import HFBertConfig

ALIGNMENT = 64  # bytes; where PyTorch itself puts a tensor
IGNORE = -100  # the label of positions without a loss, as everywhere in PyTorch and transformers


class MoveRows(torch.autograd.Function):
    """output[i] = source[take[i]], zero where take[i] is -1; `put` is the same mapping seen from the source.

    Each source row goes to one place at most, so the gradient is the same move backwards. Plain indexing
    would accumulate it row by row, which takes 4 to 30 times as long on a CPU (5,700 rows of 128 or 768).
    """

    @staticmethod
    def forward(ctx: Any, source: Tensor, take: Tensor, put: Tensor) -> Tensor:
        ctx.save_for_backward(take, put)
        if len(source) == 0:
            return source.new_zeros(len(take), *source.shape[1:])
        moved = source.index_select(0, take.clamp(min=0))
        if len(put) < len(take):  # some places get nothing
            moved.index_fill_(0, (take < 0).nonzero().squeeze(1), 0)
        return moved

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        take, put = ctx.saved_tensors
        return MoveRows.apply(gradients[0], put, take), None, None


@dataclass(frozen=True)
class Rows:
    """Where chosen positions stand in a grid of `batch_size` x `width`; worked out once per forward.

    `index` holds their places b * width + s in ascending order, `number` the row of each place, -1 for none.
    """

    index: Tensor
    number: Tensor
    batch_size: int
    width: int

    @classmethod
    def where(cls, chosen: Tensor) -> "Rows":
        """`chosen` (B, W) bool: the places that get a row."""
        flat = chosen.flatten()
        number = (flat.cumsum(0) - 1).masked_fill(~flat, -1)
        return cls(flat.nonzero().squeeze(1), number, *chosen.shape)

    @property
    def is_full(self) -> bool:
        return len(self.index) == len(self.number)

    def from_grid(self, grid: Tensor) -> Tensor:
        """(B, W, ...) -> (rows, ...)."""
        places = grid.flatten(0, 1)
        return places if self.is_full else self._move(places, self.index, self.number)

    def to_grid(self, rows: Tensor) -> Tensor:
        """(rows, ...) -> (B, W, ...), zero where there is no row."""
        places = rows if self.is_full else self._move(rows, self.number, self.index)
        return places.unflatten(0, (self.batch_size, self.width))

    @staticmethod
    def _move(source: Tensor, take: Tensor, put: Tensor) -> Tensor:
        if not source.is_floating_point():
            return source.index_select(0, take)
        return MoveRows.apply(source, take, put)


def pick(rows: Tensor, chosen: Tensor) -> Tensor:
    """(T, ...) and a bool (T,) -> the chosen rows."""
    return Rows.where(chosen[None]).from_grid(rows[None])


@dataclass(frozen=True)
class Reading:
    """What the last layer is asked for: R of the T rows, side by side in a grid (B, Q) for attention."""

    of_rows: Tensor
    queries: Rows

    @classmethod
    def at(cls, needed: Tensor, tokens: Rows) -> "Reading":
        """`needed` (B, S) bool: the places that are read, all with a real token."""
        counts = needed.sum(1, keepdim=True)
        columns = torch.arange(int(counts.max()), device=needed.device)
        return cls(of_rows=needed.flatten()[tokens.index], queries=Rows.where(columns < counts))


def checked_mask(attention_mask: Tensor | None, batch_size: int, length: int) -> Tensor | None:
    """A mask of 2, 3 or 4 dimensions -> bool, True = attend; an additive mask stays as it is.

    Integers and 2-D masks mean 1 = attend. Floats of more dimensions are additive unless they have a 1.
    """
    if attention_mask is None:
        return None
    allowed = {2: (batch_size, length), 3: (batch_size, length, length), 4: (batch_size, -1, length, length)}
    wanted = allowed.get(attention_mask.dim(), ())
    pairs = zip(attention_mask.shape, wanted, strict=bool(wanted))
    if not wanted or any(have not in (1, want) and want != -1 for have, want in pairs):
        raise ValueError(
            f"attention_mask of shape {tuple(attention_mask.shape)} does not fit {batch_size} sequences of"
            f" {length} positions: pass (B, S), (B, S, S) or (B, 1, S, S)"
        )
    if attention_mask.dim() == 2:
        return (attention_mask != 0).expand(batch_size, length)
    if attention_mask.is_floating_point() and (is_traced() or not bool((attention_mask > 0).any())):
        return attention_mask
    return attention_mask > 0


def additive_mask(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Bool, True = attend -> 0 there and the lowest number of `dtype` elsewhere."""
    zeros = torch.zeros(attention_mask.shape, dtype=dtype, device=attention_mask.device)
    return zeros.masked_fill_(~attention_mask, torch.finfo(dtype).min)


def check_ids(name: str, ids: Tensor, table: nn.Embedding) -> None:
    """Refuse an id without a row in its table; left to the table it is a bare index error, worse on a GPU."""
    if is_traced() or ids.numel() == 0 or ids.is_meta:
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= table.num_embeddings:
        wrong = low if low < 0 else high
        raise ValueError(f"{name} {wrong} is outside the table of {table.num_embeddings} rows")


def is_traced() -> bool:
    """Whether values cannot be looked at: under `torch.compile`, `torch.export` and tracing."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Formula 1 of Vaswani et al. 2017: softmax(Q K^T / sqrt(D)) V; also gives the map (B, N, Q, S)."""
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        # In half precision the sum overflows to -inf; a row of nothing else would make the softmax NaN.
        scores = (scores + attention_mask).clamp(min=torch.finfo(scores.dtype).min)
    probabilities = F.dropout(scores.softmax(dim=-1), p=dropout, training=module.training)
    return (probabilities @ value).transpose(1, 2).contiguous(), probabilities


class HFBertEmbeddings(nn.Module):
    """Token + position + segment embeddings, normalised (figure 2 of the paper)."""

    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, words: Tensor, token_type_ids: Tensor, position_ids: Tensor) -> Tensor:
        """`words`: token ids (T,) or (B, S), or their embeddings (T, H) or (B, S, H)."""
        embeddings = words if words.is_floating_point() else self.word_embeddings(words)
        embeddings = embeddings + self.token_type_embeddings(token_type_ids)
        embeddings = embeddings + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


class HFBertSelfAttention(nn.Module):
    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.config = config
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.scaling = self.attention_head_size**-0.5
        self.is_causal = False
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(
        self,
        hidden_states: Tensor,
        query_states: Tensor,
        attention_mask: Tensor | None = None,
        tokens: Rows | None = None,
        queries: Rows | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        query = self._heads(self.query(query_states), queries)
        key = self._heads(self.key(hidden_states), tokens)
        value = self._heads(self.value(hidden_states), tokens)
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        if kwargs.get("output_attentions"):
            attention = eager_attention_forward  # the other implementations never form the map
        if (
            attention_mask is not None
            and torch.is_tensor(attention_mask)
            and attention_mask.is_floating_point()
        ):
            attention_mask = attention_mask.to(query.dtype)  # autocast may have changed the scores' type
        dropout = self.dropout.p if self.training else 0.0
        context, probabilities = attention(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        context = context.flatten(2)  # (B, S, N, D) -> (B, S, H)
        return (context if queries is None else queries.from_grid(context)), probabilities

    def _heads(self, states: Tensor, rows: Rows | None) -> Tensor:
        grid = states if rows is None else rows.to_grid(states)
        return grid.unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)  # (B, N, S, D)


class HFBertAddNorm(nn.Module):
    """Project back to H, drop, add the input and normalise: the end of both halves of a post-norm layer."""

    def __init__(self, in_features: int, config: HFBertConfig):
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)


class HFBertAttention(nn.Module):
    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.self = HFBertSelfAttention(config)
        self.output = HFBertAddNorm(config.hidden_size, config)

    def forward(
        self, hidden_states: Tensor, reading: Reading | None, tokens: Rows | None, **kwargs: Any
    ) -> Tensor:
        query_states = hidden_states if reading is None else pick(hidden_states, reading.of_rows)
        queries = tokens if reading is None else reading.queries
        context, _ = self.self(hidden_states, query_states, tokens=tokens, queries=queries, **kwargs)
        return self.output(context, query_states)


class HFBertIntermediate(nn.Module):
    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.activation(self.dense(hidden_states))


class HFBertLayer(GradientCheckpointingLayer):
    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = HFBertAttention(config)
        self.intermediate = HFBertIntermediate(config)
        self.output = HFBertAddNorm(config.intermediate_size, config)

    def forward(
        self, hidden_states: Tensor, reading: Reading | None = None, tokens: Rows | None = None, **kwargs: Any
    ) -> Tensor:
        attended = self.attention(hidden_states, reading, tokens, **kwargs)  # (R, H) where a reading is given
        if self.chunk_size_feed_forward == 0:
            return self._feed_forward(attended)
        chunks = attended.split(self.chunk_size_feed_forward, dim=-2)
        return torch.cat([self._feed_forward(chunk) for chunk in chunks], dim=-2)

    def _feed_forward(self, attended: Tensor) -> Tensor:
        return self.output(self.intermediate(attended), attended)


class HFBertEncoder(nn.Module):
    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.layer = nn.ModuleList([HFBertLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, hidden_states: Tensor, reading: Reading | None = None, **kwargs: Any) -> Tensor:
        """Every layer on all rows, the last one only on those that are read."""
        for layer in self.layer[:-1]:
            hidden_states = layer(hidden_states, None, **kwargs)
        return self.layer[-1](hidden_states, reading, **kwargs)


class HFBertPooler(nn.Module):
    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = nn.Tanh()

    def forward(self, first_token: Tensor) -> Tensor:
        return self.activation(self.dense(first_token))


class HFBertPredictionHeadTransform(nn.Module):
    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.LayerNorm(self.activation(self.dense(hidden_states)))


class HFBertLMPredictionHead(nn.Module):
    def __init__(self, config: HFBertConfig):
        super().__init__()
        self.transform = HFBertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # stock's second name of decoder.bias

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.transform(hidden_states))


class HFBertPreTrainingHeads(nn.Module):
    """The head of masked LM, of next sentence prediction, or both: stock's three classes under one `cls`."""

    def __init__(self, config: HFBertConfig, masked_lm: bool = True, next_sentence: bool = True):
        super().__init__()
        if masked_lm:
            self.predictions = HFBertLMPredictionHead(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)


class HFBertPreTrainedModel(PreTrainedModel):
    config: HFBertConfig
    config_class = HFBertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _no_split_modules = ["HFBertEmbeddings", "HFBertLayer"]
    _can_record_outputs = {"hidden_states": HFBertLayer, "attentions": HFBertSelfAttention}
    _keys_to_ignore_on_load_unexpected = [r"embeddings\.position_ids$"]  # a buffer of older BERT checkpoints

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As in transformers, and then bit for bit the model that was saved.

        Weights mapped from a file begin at odd addresses, where matrix products round differently in the last
        bit; those are copied to memory of their own.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # with output_loading_info
        for parameter in model.parameters():
            if parameter.device.type == "cpu" and parameter.data_ptr() % ALIGNMENT:
                parameter.data = parameter.data.clone()
        return loaded

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, HFBertLMPredictionHead):
            init.zeros_(module.bias)


class HFBertModel(HFBertPreTrainedModel):
    """The encoder, with the pooler unless `add_pooling_layer=False`; drop-in for stock `BertModel`."""

    def __init__(self, config: HFBertConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = HFBertEmbeddings(config)
        self.encoder = HFBertEncoder(config)
        self.pooler = HFBertPooler(config) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: Any) -> None:
        self.embeddings.word_embeddings = value

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)  # the last layer gives it already, on the whole grid
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        read_positions: Tensor | None = None,
        padding_is_read: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode a batch.

        `input_ids` (B, S) or `inputs_embeds` (B, S, H). `attention_mask`: (B, S), 1 for real tokens; or
        (B, S, S) or (B, 1 or N, S, S), 1 or True where a query may attend, or additive floats.
        `token_type_ids` (B, S), 0 for sentence A and 1 for B. `position_ids` (B or 1, S).

        `read_positions` (R,): ascending places b * S + s of the only states the caller reads, apart from the
        pooler's; `last_hidden_state` is then (R, H), and the last layer is computed there alone.
        `padding_is_read`: the caller needs the states of padding too. Without either, `last_hidden_state` is
        (B, S, H), zero at padding where padding was dropped.

        Raises `ValueError` for a sequence longer than the position table, an id outside its table, and a mask
        whose shape does not fit.
        """
        words = self._checked_words(input_ids, inputs_embeds)
        batch_size, length = words.shape[:2]
        token_type_ids = self._token_types(token_type_ids, words)
        position_ids = self._positions(position_ids, words)
        attention_mask = checked_mask(attention_mask, batch_size, length)
        kwargs["output_attentions"] = bool(kwargs.get("output_attentions", self.config.output_attentions))

        needed = self._needed(read_positions, words)
        tokens = None
        if not padding_is_read and self._may_drop_padding(attention_mask, kwargs):
            tokens = self._real_tokens(attention_mask, needed, words)
        mask = self._prepared_mask(attention_mask, tokens, words, kwargs["output_attentions"])
        if tokens is not None:
            words, token_type_ids, position_ids = map(tokens.from_grid, (words, token_type_ids, position_ids))
        reading = self._reading(needed, tokens)
        states = self.embeddings(words, token_type_ids, position_ids)
        states = self.encoder(states, reading, tokens=tokens, attention_mask=mask, **kwargs)
        return self._output(states, tokens, needed if reading else None, read_positions)

    def _checked_words(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if input_ids is not None and inputs_embeds is None:
            words = input_ids
            check_ids("token id", words, self.embeddings.word_embeddings)
        elif inputs_embeds is not None and input_ids is None:
            words = inputs_embeds
        else:
            raise ValueError("You must specify exactly one of input_ids or inputs_embeds")
        if not is_traced() and words.numel() == 0:
            raise ValueError(f"nothing to encode: {words.shape[0]} sequences of {words.shape[1]} positions")
        return words

    def _token_types(self, token_type_ids: Tensor | None, words: Tensor) -> Tensor:
        if token_type_ids is None:
            return torch.zeros(words.shape[:2], dtype=torch.long, device=words.device)
        check_ids("token type id", token_type_ids, self.embeddings.token_type_embeddings)
        return token_type_ids.expand(words.shape[:2])

    def _positions(self, position_ids: Tensor | None, words: Tensor) -> Tensor:
        if position_ids is not None:
            check_ids("position id", position_ids, self.embeddings.position_embeddings)
            return position_ids.expand(words.shape[:2])
        length, limit = words.shape[1], self.embeddings.position_embeddings.num_embeddings
        if length > limit:
            raise ValueError(f"sequence length {length} > {limit}, the number of positions this model knows")
        return torch.arange(length, device=words.device).expand(words.shape[:2])

    def _needed(self, read_positions: Tensor | None, words: Tensor) -> Tensor | None:
        """(B, S) bool: the places whose last state somebody reads; None for all."""
        if read_positions is None:
            return None
        needed = torch.zeros(words.shape[:2], dtype=torch.bool, device=words.device)
        needed.view(-1)[read_positions] = True
        if self.pooler is not None:
            needed[:, 0] = True
        return needed

    def _may_drop_padding(self, attention_mask: Tensor | None, kwargs: dict[str, Any]) -> bool:
        """Rows need a plain padding mask, values that can be looked at, and nobody who records the layers."""
        is_plain = attention_mask is None or attention_mask.dim() == 2
        is_recorded = kwargs["output_attentions"] or kwargs.get(
            "output_hidden_states", self.config.output_hidden_states
        )
        return self.config.padding_free is not False and is_plain and not is_recorded and not is_traced()

    def _real_tokens(
        self, attention_mask: Tensor | None, needed: Tensor | None, words: Tensor
    ) -> Rows | None:
        """The batch's real tokens, or None where rows gain nothing or a state of padding is read."""
        if attention_mask is None and needed is None and not self.config.padding_free:
            return None
        real = attention_mask
        if real is None:
            real = torch.ones(words.shape[:2], dtype=torch.bool, device=words.device)
        read = needed if needed is not None else real.clone()
        if needed is None and self.pooler is not None:
            read[:, 0] = True  # left padding: stock pools the padding that stands first
        tokens = Rows.where(real)
        gains = needed is not None or not tokens.is_full or self.config.padding_free
        return tokens if gains and len(tokens.index) > 0 and not bool((read & ~real).any()) else None

    def _reading(self, needed: Tensor | None, tokens: Rows | None) -> Reading | None:
        """Fewer queries than keys go through eager and sdpa; other implementations want them equal."""
        if needed is None or tokens is None or self.config._attn_implementation not in ("eager", "sdpa"):
            return None
        return Reading.at(needed, tokens) if bool(needed.any()) else None  # sdpa refuses a grid of no queries

    def _prepared_mask(
        self, attention_mask: Tensor | None, tokens: Rows | None, words: Tensor, output_attentions: bool
    ) -> Tensor | None:
        """What the attention implementation wants: additive for eager, bool for sdpa, its own for others."""
        implementation = "eager" if output_attentions else self.config._attn_implementation
        if attention_mask is None or (tokens is not None and tokens.is_full):
            return None
        weight = self.embeddings.word_embeddings.weight
        grid = {2: (slice(None), None, None), 3: (slice(None), None), 4: ()}[attention_mask.dim()]
        if implementation not in ("eager", "sdpa"):
            mask = attention_mask if attention_mask.dim() == 2 else attention_mask[grid]
            embeds = weight.new_empty(*words.shape[:2], 1)
            return create_bidirectional_mask(config=self.config, inputs_embeds=embeds, attention_mask=mask)
        mask = attention_mask[grid]  # (B, 1, 1 or S, S)
        return (
            additive_mask(mask, weight.dtype)
            if implementation == "eager" and mask.dtype == torch.bool
            else mask
        )

    def _output(
        self, states: Tensor, tokens: Rows | None, needed: Tensor | None, read_positions: Tensor | None
    ) -> BaseModelOutputWithPooling:
        """`states`: (B, S, H); or rows, of the places in `needed` or, without it, of all real tokens."""
        if tokens is None or read_positions is None:
            grid = states if tokens is None else tokens.to_grid(states)
            first = grid[:, 0]
            last = grid if read_positions is None else grid.flatten(0, 1)[read_positions]
        else:
            stands = (
                needed.flatten()[tokens.index] if needed is not None else torch.ones_like(tokens.index) > 0
            )
            places = tokens.index[stands]
            read = torch.zeros_like(tokens.number, dtype=torch.bool)
            read[read_positions] = True
            last = pick(states, read[places])
            first = pick(states, places % tokens.width == 0)
        pooled = self.pooler(first) if self.pooler is not None else None
        return BaseModelOutputWithPooling(last_hidden_state=last, pooler_output=pooled)


def cross_entropy(logits: Tensor, labels: Tensor, num_items: Tensor | int | None = None) -> Tensor:
    """Sum over labels that are not -100, divided by their number or by `num_items`; 0 when there are none.

    `logits` (rows, classes), `labels` (rows,). Half precision is summed in float32: thousands of terms fit.
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    labels = labels.to(logits.device)
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return total / divisor((labels != IGNORE).sum() if num_items is None else num_items)


def divisor(count: Tensor | int) -> Tensor | int:
    """The count, or 1 for none: `Trainer` counts 0 labels when a whole step has none, and 0 / 0 is NaN."""
    return count + (count == 0)


def labels_on_padding(labels: Tensor | None, attention_mask: Tensor | None) -> bool:
    """Whether a loss is asked for at a position that is padding; under tracing, to be safe, yes."""
    if labels is None or attention_mask is None or attention_mask.dim() != 2:
        return False
    return is_traced() or bool(((labels != IGNORE) & (attention_mask == 0)).any())


class HFBertMaskedLMBase(HFBertPreTrainedModel):
    """What the two models with a masked-LM head share: the tie to the embeddings and the logits."""

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def get_output_embeddings(self) -> Any:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """The two names of the bias are one parameter even where the decoder's weight is its own."""
        tied = super().get_expanded_tied_weights_keys(all_submodels)
        return tied | {"cls.predictions.decoder.bias": "cls.predictions.bias"}

    def _get_resized_lm_head(self, old_lm_head: nn.Linear, *args: Any, **kwargs: Any) -> nn.Linear:
        """A new token starts without a bias; transformers would give it the mean of the old ones."""
        new_lm_head = super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
        with torch.no_grad():
            new_lm_head.bias[old_lm_head.out_features :] = 0
        return new_lm_head

    def _encode(
        self, labels: Tensor | None, inputs: tuple[Tensor | None, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The encoder's outputs for what the head reads, and the labels in the order of those rows."""
        if labels is None or not self.config.sparse_prediction:
            outputs = self.bert(*inputs, padding_is_read=labels_on_padding(labels, inputs[1]), **kwargs)
            return outputs, labels if labels is None else labels.flatten()
        words = inputs[0] if inputs[0] is not None else inputs[4]
        if words is not None and labels.shape != words.shape[:2]:  # places in another grid would be misread
            raise ValueError(
                f"labels of shape {tuple(labels.shape)} do not fit inputs of {tuple(words.shape[:2])}"
            )
        labels = labels.flatten()
        labelled = (labels != IGNORE).nonzero().squeeze(1)
        return self.bert(*inputs, read_positions=labelled, **kwargs), labels[labelled]


@dataclass
class HFBertForPreTrainingOutput(ModelOutput):
    """`loss`: the sum of both; `prediction_logits` (B, S, V), or (labelled, V) with `sparse_prediction`;
    `seq_relationship_logits` (B, 2), class 0: B follows A, class 1: B is random."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class HFBertForPreTraining(HFBertMaskedLMBase):
    """Masked LM and next sentence prediction on one encoder (section 3.1 of the paper)."""

    def __init__(self, config: HFBertConfig):
        super().__init__(config)
        self.bert = HFBertModel(config)
        self.cls = HFBertPreTrainingHeads(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        num_pairs_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> HFBertForPreTrainingOutput:
        """`labels` (B, S), -100 where nothing is predicted; `next_sentence_label` (B,): 0 = next, 1 = random.

        The loss is the sum of the two means, or the one whose label is given. `num_items_in_batch` and
        `num_pairs_in_batch`, counted over all micro-batches and processes of a step, replace local counts.
        `Trainer` gives only the first; the second loss is then weighted by this micro-batch's share of items.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs, targets = self._encode(labels, inputs, kwargs)
        prediction_logits = self.cls.predictions(outputs.last_hidden_state)
        pair_logits = self.cls.seq_relationship(outputs.pooler_output)
        losses: list[Tensor] = []
        if targets is not None:
            losses.append(cross_entropy(prediction_logits.flatten(0, -2), targets, num_items_in_batch))
        if next_sentence_label is not None:
            pair_loss = cross_entropy(pair_logits, next_sentence_label.view(-1), num_pairs_in_batch)
            if targets is not None and num_items_in_batch is not None and num_pairs_in_batch is None:
                pair_loss = pair_loss * (targets != IGNORE).sum() / divisor(num_items_in_batch)
            losses.append(pair_loss)
        loss = torch.stack(losses).sum() if losses else None
        return HFBertForPreTrainingOutput(
            loss, prediction_logits, pair_logits, outputs.hidden_states, outputs.attentions
        )


class HFBertForMaskedLM(HFBertMaskedLMBase):
    """Fill in [MASK]: the masked-LM head alone, without a pooler."""

    def __init__(self, config: HFBertConfig):
        super().__init__(config)
        self.bert = HFBertModel(config, add_pooling_layer=False)
        self.cls = HFBertPreTrainingHeads(config, next_sentence=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """`labels` (B, S), -100 where nothing is predicted; logits (B, S, V), or (labelled, V) if sparse."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs, targets = self._encode(labels, inputs, kwargs)
        logits = self.cls.predictions(outputs.last_hidden_state)
        loss = None if targets is None else cross_entropy(logits.flatten(0, -2), targets, num_items_in_batch)
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class HFBertPooledBase(HFBertPreTrainedModel):
    """What the three models that read [CLS] alone share."""

    def _pooled(
        self, inputs: tuple[Tensor | None, ...], kwargs: dict[str, Any]
    ) -> BaseModelOutputWithPooling:
        """No state but the pooler's is read, so the last layer needs one query a sequence."""
        nothing = torch.zeros(0, dtype=torch.long, device=self.device)
        return self.bert(*inputs, read_positions=nothing, **kwargs)


class HFBertForNextSentencePrediction(HFBertPooledBase):
    """Does sentence B follow sentence A? Class 0: it does; class 1: it is a random one."""

    def __init__(self, config: HFBertConfig):
        super().__init__(config)
        self.bert = HFBertModel(config)
        self.cls = HFBertPreTrainingHeads(config, masked_lm=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> NextSentencePredictorOutput:
        """`labels` (B,): 0 = B follows A, 1 = random; logits (B, 2)."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self._pooled(inputs, kwargs)
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return NextSentencePredictorOutput(loss, logits, outputs.hidden_states, outputs.attentions)


def classifier_dropout(config: HFBertConfig) -> nn.Dropout:
    own = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if own is None else own)


class HFBertForSequenceClassification(HFBertPooledBase):
    """A label, several labels or a number for a sentence or a pair, read from [CLS]."""

    def __init__(self, config: HFBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = HFBertModel(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)  # type: ignore[arg-type]
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """`labels`: (B,) classes, (B,) numbers when `num_labels` is 1, or (B, num_labels) of 0 and 1.

        Which of the three, `config.problem_type` says; without it, it is told from the labels and kept there.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self._pooled(inputs, kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else self._loss(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)

    def _loss(self, logits: Tensor, labels: Tensor, num_items: Tensor | int | None) -> Tensor:
        if self.config.problem_type is None:
            self.config.problem_type = self._problem_type(labels)
        if self.config.problem_type == "single_label_classification":
            return cross_entropy(logits, labels.view(-1), num_items)
        is_regression = self.config.problem_type == "regression"
        loss = F.mse_loss if is_regression else F.binary_cross_entropy_with_logits
        targets = labels.to(logits).view(logits.shape)  # (B,) against (B, 1) would broadcast to (B, B)
        total = loss(logits, targets, reduction="sum")
        return total / divisor(labels.numel() if num_items is None else num_items)

    def _problem_type(self, labels: Tensor) -> Any:
        if self.num_labels == 1:
            return "regression"
        is_one_class_each = labels.dim() == 1 and not labels.is_floating_point()
        return "single_label_classification" if is_one_class_each else "multi_label_classification"


class HFBertForMultipleChoice(HFBertPooledBase):
    """Which of C continuations? Each is scored from its own [CLS] (section 4.4 of the paper)."""

    def __init__(self, config: HFBertConfig):
        super().__init__(config)
        self.bert = HFBertModel(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> MultipleChoiceModelOutput:
        """Inputs (B, C, S), or (B, C, S, H) for `inputs_embeds`; `labels` (B,); logits (B, C)."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self._pooled(tuple(None if part is None else part.flatten(0, 1) for part in inputs), kwargs)
        num_choices = (input_ids if inputs_embeds is None else inputs_embeds).shape[1]
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, num_choices)
        loss = None if labels is None else cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return MultipleChoiceModelOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class HFBertForTokenClassification(HFBertPreTrainedModel):
    """A label for every token, each from its own last state (section 5.3 of the paper)."""

    def __init__(self, config: HFBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = HFBertModel(config, add_pooling_layer=False)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)  # type: ignore[arg-type]
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """`labels` (B, S), -100 where there is none; logits (B, S, num_labels)."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.bert(*inputs, padding_is_read=labels_on_padding(labels, attention_mask), **kwargs)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), num_items_in_batch)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class HFBertForQuestionAnswering(HFBertPreTrainedModel):
    """Where an answer starts and ends (section 4.2 of the paper)."""

    def __init__(self, config: HFBertConfig):
        super().__init__(config)
        self.bert = HFBertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """`start_positions`, `end_positions` (B,); one beyond S has no loss, a negative one counts as 0.

        Logits (B, S) each. Their softmax runs over all S positions, so padding is read and keeps its states.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs = self.bert(*inputs, padding_is_read=True, **kwargs)
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            start_loss = self._position_loss(start_logits, start_positions, num_items_in_batch)
            loss = (start_loss + self._position_loss(end_logits, end_positions, num_items_in_batch)) / 2
        start_logits, end_logits = start_logits.contiguous(), end_logits.contiguous()
        return QuestionAnsweringModelOutput(
            loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions
        )

    @staticmethod
    def _position_loss(logits: Tensor, positions: Tensor, num_items: Tensor | int | None) -> Tensor:
        positions = positions.view(-1)
        beyond = positions >= logits.shape[1]
        return cross_entropy(logits, positions.clamp(min=0).masked_fill(beyond, IGNORE), num_items)


__all__ = [
    "HFBertForMaskedLM",
    "HFBertForMultipleChoice",
    "HFBertForNextSentencePrediction",
    "HFBertForPreTraining",
    "HFBertForPreTrainingOutput",
    "HFBertForQuestionAnswering",
    "HFBertForSequenceClassification",
    "HFBertForTokenClassification",
    "HFBertModel",
    "HFBertPreTrainedModel",
]
