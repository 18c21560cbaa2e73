"""Importing this makes autograph leave Keras and TFRA as they are, as it leaves TensorFlow.

It does not know tf_keras, and rewrites all of its code and TFRA's that a traced step comes through, which takes 15 to 40
seconds of CPU in each process, and changes nothing: there is no control flow over tensors in it. The examples and those in
the documentation are tested without this, as users run them.
"""

from tensorflow.python.autograph.core import config

config.CONVERSION_RULES = (config.DoNotConvert("tf_keras"), config.DoNotConvert("tensorflow_recommenders_addons"),
                           *config.CONVERSION_RULES)
