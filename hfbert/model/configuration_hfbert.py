"""The numbers that shape a BERT -> one checked object, saved as `config.json`.

HFBertConfig(num_hidden_layers=2, hidden_size=128, num_attention_heads=2)  ->  config.json of a tiny BERT
"""

from dataclasses import field

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

# Every head is named, whichever head is saved: `save_pretrained` by itself would name only its own class.
AUTO_MAP = {
    "AutoConfig": "configuration_hfbert.HFBertConfig",
    "AutoModel": "modeling_hfbert.HFBertModel",
    "AutoModelForPreTraining": "modeling_hfbert.HFBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_hfbert.HFBertForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_hfbert.HFBertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_hfbert.HFBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_hfbert.HFBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_hfbert.HFBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_hfbert.HFBertForMultipleChoice",
}

PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)


@strict
class HFBertConfig(PreTrainedConfig):
    """Configuration of an hfbert encoder; names and defaults are those of stock `BertConfig` (BERT base).

    Two fields are hfbert's own:

    * `padding_free`: whether linear layers, norms and heads run on real tokens only. `None` does it whenever
      a batch has padding and nothing asks for the padded grid; `False` never; `True` also without padding.
      Outputs have the same shapes and, on real tokens, the same numbers either way; states of padding are 0.
    * `sparse_prediction`: whether masked-LM logits are computed only where `labels` is not -100; they then
      have the shape `(number of labelled positions, vocab_size)`.

    Raises `huggingface_hub.errors.StrictDataclassError`, naming the field and its value, when a type is
    wrong, `hidden_size` is not a multiple of `num_attention_heads`, a size is not positive, a probability is
    outside [0, 1], or a stock config asks for what this encoder lacks (a decoder, cross-attention, relative
    positions).
    """

    model_type = "hfbert"

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-12
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    is_decoder: bool = False
    add_cross_attention: bool = False
    position_embedding_type: str = "absolute"
    padding_free: bool | None = None
    sparse_prediction: bool = False
    auto_map: dict[str, str] = field(default_factory=lambda: dict(AUTO_MAP))

    def validate_architecture(self) -> None:
        for name in SIZES:
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        for name in PROBABILITIES:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name}={value} is not a probability: it must be between 0 and 1")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not a multiple of"
                f" num_attention_heads={self.num_attention_heads}"
            )
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"pad_token_id={self.pad_token_id} is outside the vocabulary of {self.vocab_size}"
            )
        if self.is_decoder or self.add_cross_attention:
            raise ValueError("hfbert is an encoder: is_decoder and add_cross_attention must be false")
        if self.position_embedding_type != "absolute":
            raise ValueError(
                f"position_embedding_type={self.position_embedding_type!r}: only 'absolute' is BERT's"
            )


__all__ = ["HFBertConfig"]
