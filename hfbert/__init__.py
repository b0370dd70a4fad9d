"""Raw text in, a BERT on the Hub out. Importing this teaches transformers' Auto classes the model type."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertTokenizer,
)

from hfbert.data.collator import DataCollatorForPreTraining
from hfbert.model.configuration_hfbert import HFBertConfig
from hfbert.model.modeling_hfbert import (
    HFBertForMaskedLM,
    HFBertForMultipleChoice,
    HFBertForNextSentencePrediction,
    HFBertForPreTraining,
    HFBertForQuestionAnswering,
    HFBertForSequenceClassification,
    HFBertForTokenClassification,
    HFBertModel,
)

__version__ = "0.2.0"

AutoConfig.register("hfbert", HFBertConfig)
AutoTokenizer.register(HFBertConfig, BertTokenizer)
HFBertConfig.register_for_auto_class()
for auto_class, head in (
    (AutoModel, HFBertModel),
    (AutoModelForPreTraining, HFBertForPreTraining),
    (AutoModelForMaskedLM, HFBertForMaskedLM),
    (AutoModelForNextSentencePrediction, HFBertForNextSentencePrediction),
    (AutoModelForSequenceClassification, HFBertForSequenceClassification),
    (AutoModelForTokenClassification, HFBertForTokenClassification),
    (AutoModelForQuestionAnswering, HFBertForQuestionAnswering),
    (AutoModelForMultipleChoice, HFBertForMultipleChoice),
):
    auto_class.register(HFBertConfig, head)
    head.register_for_auto_class(auto_class.__name__)

__all__ = [
    "DataCollatorForPreTraining",
    "HFBertConfig",
    "HFBertForMaskedLM",
    "HFBertForMultipleChoice",
    "HFBertForNextSentencePrediction",
    "HFBertForPreTraining",
    "HFBertForQuestionAnswering",
    "HFBertForSequenceClassification",
    "HFBertForTokenClassification",
    "HFBertModel",
]
