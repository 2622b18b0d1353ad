"""Settings of every verb, each declared once.

What changes the result of a scan, an inference or a polish enters the fingerprint of its store. How a job runs
(``ExecutionOptions``) does not change the result.
"""

from streaming_jsmf.config.fields import declared as declared
from streaming_jsmf.config.fields import declared_in
from streaming_jsmf.config.fields import fields_given as fields_given
from streaming_jsmf.config.fields import for_texts as for_texts
from streaming_jsmf.config.inference import ANCHOR_ROW_SUM as ANCHOR_ROW_SUM
from streaming_jsmf.config.inference import AUTO as AUTO
from streaming_jsmf.config.inference import Acceleration as Acceleration
from streaming_jsmf.config.inference import AnchorMethod as AnchorMethod
from streaming_jsmf.config.inference import CorrelationMethod as CorrelationMethod
from streaming_jsmf.config.inference import InferSettings as InferSettings
from streaming_jsmf.config.inference import MissingMass as MissingMass
from streaming_jsmf.config.inference import PolishSettings as PolishSettings
from streaming_jsmf.config.inference import Rectifier as Rectifier
from streaming_jsmf.config.inference import StodSettings as StodSettings
from streaming_jsmf.config.inference import UpdateSettings as UpdateSettings
from streaming_jsmf.config.inference import Vanished as Vanished
from streaming_jsmf.config.ingestion import ALL_DOCUMENTS as ALL_DOCUMENTS
from streaming_jsmf.config.ingestion import FIXED_BY_MODEL as FIXED_BY_MODEL
from streaming_jsmf.config.ingestion import INGEST_SETTINGS as INGEST_SETTINGS
from streaming_jsmf.config.ingestion import TEXT_CURATION as TEXT_CURATION
from streaming_jsmf.config.ingestion import Curation as Curation
from streaming_jsmf.config.ingestion import IngestRequest as IngestRequest
from streaming_jsmf.config.ingestion import OnBadRecord as OnBadRecord
from streaming_jsmf.config.ingestion import Preset as Preset
from streaming_jsmf.config.ingestion import curation_values as curation_values
from streaming_jsmf.config.ingestion import request_of as request_of
from streaming_jsmf.config.keywords import ENGINE_SETTINGS as ENGINE_SETTINGS
from streaming_jsmf.config.keywords import engine_settings_of as engine_settings_of
from streaming_jsmf.config.keywords import settings_of as settings_of
from streaming_jsmf.config.keywords import takes as takes
from streaming_jsmf.config.readers import READER_OPTIONS as READER_OPTIONS
from streaming_jsmf.config.readers import BagOptions as BagOptions
from streaming_jsmf.config.readers import RatingsOptions as RatingsOptions
from streaming_jsmf.config.readers import ReaderName as ReaderName
from streaming_jsmf.config.readers import SpecReader as SpecReader
from streaming_jsmf.config.readers import check_options as check_options
from streaming_jsmf.config.readers import readers_with as readers_with
from streaming_jsmf.config.reading import BUILT_IN as BUILT_IN
from streaming_jsmf.config.reading import EXCERPT as EXCERPT
from streaming_jsmf.config.reading import EXCERPT_CHARACTERS as EXCERPT_CHARACTERS
from streaming_jsmf.config.reading import Delimited as Delimited
from streaming_jsmf.config.reading import ReadOptions as ReadOptions
from streaming_jsmf.config.reading import TextOptions as TextOptions
from streaming_jsmf.config.reading import TokenOptions as TokenOptions
from streaming_jsmf.config.requests import DEFAULT_WORDS as DEFAULT_WORDS
from streaming_jsmf.config.requests import ComparisonRequest as ComparisonRequest
from streaming_jsmf.config.requests import EvaluationRequest as EvaluationRequest
from streaming_jsmf.config.requests import ExecutionOptions as ExecutionOptions
from streaming_jsmf.config.requests import Order as Order
from streaming_jsmf.config.requests import ReportRequest as ReportRequest
from streaming_jsmf.config.requests import SimulationSettings as SimulationSettings
from streaming_jsmf.config.requests import TopicChanges as TopicChanges
from streaming_jsmf.config.requests import TopicsRequest as TopicsRequest
from streaming_jsmf.config.requests import parse_memory as parse_memory
from streaming_jsmf.config.scan import CAPPED_LENGTH as CAPPED_LENGTH
from streaming_jsmf.config.scan import DocumentWeights as DocumentWeights
from streaming_jsmf.config.scan import ScanSettings as ScanSettings
from streaming_jsmf.config.share_queries import DEFAULT_NUMBER as DEFAULT_NUMBER
from streaming_jsmf.config.share_queries import DocumentQuery as DocumentQuery
from streaming_jsmf.config.share_queries import EffectsRequest as EffectsRequest
from streaming_jsmf.config.share_queries import OverTimeRequest as OverTimeRequest
from streaming_jsmf.config.share_queries import ShareSettings as ShareSettings
from streaming_jsmf.config.share_queries import column_names as column_names
from streaming_jsmf.errors import VERB_OF

_SETTINGS_OF = {
    "scan": (ScanSettings,),
    "infer": ENGINE_SETTINGS,
    "polish": (PolishSettings,),
    "ingest": INGEST_SETTINGS,
}
for _verb, _kinds in _SETTINGS_OF.items():
    for _field in declared_in(_kinds).values():
        for _name in _field.names if _field.option else ():
            VERB_OF.setdefault(_name, _verb)
