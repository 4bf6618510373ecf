"""Text -> tokenizer -> small trained model -> checkpoint series with metrics."""
